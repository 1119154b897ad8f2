// Vectors makes the test vectors of this module and the worked example of its
// messages.
//
//	vectors [FOLDER]
//
// It writes testdata/vectors and attest/testdata/messages below FOLDER, which is the
// repository unless given, in place of those that are there. Good evidence comes
// from the reference simulator of a TPM; each attack is one change to it, or a
// statement that no TPM would make, signed by an attestation key in software that
// the same CA has certified. Keys, certificates, requests and nonces follow from a
// seed and stay the same from run to run. What a TPM draws or counts itself does
// not: keys that it makes, its clock, ECDSA and RSAPSS signatures.
package main

import (
	"errors"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "vectors:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	root := "."
	switch len(args) {
	case 0:
	case 1:
		root = args[0]
	default:
		return errors.New("usage: vectors [FOLDER]")
	}
	set, messages, err := generate()
	if err != nil {
		return err
	}
	if err := writeVectors(root, set); err != nil {
		return err
	}
	return writeMessages(root, messages)
}
