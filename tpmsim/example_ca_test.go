package tpmsim_test

import (
	"fmt"
	"log"
	"time"

	"github.com/nodeattest/nodeattest/tpmsim"
)

// A CA with a seed and a fixed clock issues the same certificates in every run.
func ExampleNewCA() {
	ca, err := tpmsim.NewCA(tpmsim.CAOptions{
		Name: "Example",
		Seed: []byte("example"),
		Now:  func() time.Time { return time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC) },
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range append(ca.Intermediates(), ca.Root()) {
		fmt.Printf("%v, serial %x\n", c.Subject, c.SerialNumber)
	}
	// Output:
	// CN=Example EK CA, serial 3b9f05ddb94c40d81c66e5d6f8944ac8
	// CN=Example AK CA, serial 3a852ef5f288b65f85bb22b28e33732a
	// CN=Example root, serial 20e23473a751c0fa538d846e9114ce2f
}
