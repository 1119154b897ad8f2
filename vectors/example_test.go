package vectors_test

import (
	"encoding/json"
	"fmt"
	"log"

	"github.com/nodeattest/nodeattest/vectors"
)

// An implementation reads each vector, does what its level says, and compares the outcome.
func Example() {
	text, err := vectors.FS.ReadFile("data/request/trailing-text.json")
	if err != nil {
		log.Fatal(err)
	}
	var v struct {
		Level, Expect, Description string
		Bundle                     struct{ PEM []byte }
	}
	if err := json.Unmarshal(text, &v); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s of %d bytes: %s\n", v.Level, len(v.Bundle.PEM), v.Description)
	fmt.Println("must be refused by", v.Expect)
	// Output:
	// bundle of 841 bytes: Text without line end stands behind the last block.
	// must be refused by bundle-block
}
