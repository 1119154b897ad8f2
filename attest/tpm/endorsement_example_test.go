package tpm_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// The endorsement hierarchy gets a password at the first start, and has it at
// every later one.
func ExampleEndorsementPassword() {
	device, err := tpmsim.Open(tpmsim.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	dir, err := os.MkdirTemp(".", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "endorsement-password")

	first, err := tpmkind.EndorsementPassword(context.Background(), device, path)
	if err != nil {
		log.Fatal(err)
	}
	second, err := tpmkind.EndorsementPassword(context.Background(), device, path)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(first, len(first.Reveal()), bytes.Equal(first.Reveal(), second.Reveal()))
	// Output: [secret] 32 true
}
