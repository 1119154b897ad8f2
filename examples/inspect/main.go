// Inspect prints a node's certificate request, or evidence from a TPM, as an indented,
// human-readable tree:
//
//	go run ./examples/inspect bundle.pem
//	kubectl get csr node-1 -o json | go run ./examples/inspect
//	go run ./examples/inspect certinfo.bin pubarea.bin sig.tpmt.bin ak.der
//
// It recognises, without being told: the PEM of a request with evidence (in the form of this
// SDK or of the Cluster API proposal); a CertificateSigningRequest object in JSON,
// with the challenge in its Denied condition; PKCS#10 requests and certificates, in PEM
// or DER; the DER of an AttestationBundle and of the messages in it; a challenge in
// base64; TPMS_ATTEST, TPMT_PUBLIC and TPMT_SIGNATURE as bare bytes. Several files are
// treated as the parts of one piece of evidence, and the tree ends with how the parts
// fit together.
//
// Each structure is read by the SDK's own strict parser and shown field by field, under
// the names of the SDK's documentation; a field that is zero or empty is left out. Whatever
// a parser refuses is marked by a line that begins with "!!". DER that is refused is then
// outlined, element by element, up to the fault and its byte, including any intact
// structures in it. Bytes are counted from the start of the file, of the PEM block's content
// or of the decoded base64, whichever is innermost. The exit status is 0 if everything was
// read, 1 if something was not, and 2 if the command line is wrong. Status 0 means only
// that the input is well formed: this program trusts no roots, and knows neither the
// challenge key nor the machine. Verification is the job of a Verifier.
//
// Control characters in the input are printed escaped. Secrets are not printed: for a
// challenge's secret only the size is shown.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/nodeattest/nodeattest/refusal"
)

// maxInput is the maximum size of one input in bytes. A request that Kubernetes stores is
// smaller.
const maxInput = 2 << 20

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program. It returns the exit status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("inspect", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: inspect [file ...]   (standard input where there is none, or for -)")
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	names := flags.Args()
	if len(names) == 0 {
		names = []string{"-"}
	}
	t := newTree(stdout)
	status := 0
	fail := func(why string) {
		fmt.Fprintf(stderr, "inspect: %s\n", refusal.Escape(why))
		status = 1
	}
	for _, name := range names {
		input, err := readInput(name, stdin)
		if name == "-" {
			name = "standard input"
		}
		if err != nil {
			fail(name + ": " + err.Error())
			continue
		}
		t.in(name, sizeOf(len(input)), func() { showInput(t, input) })
	}
	t.showFit()
	if err := t.w.Flush(); err != nil {
		fail(err.Error())
	}
	for _, fault := range t.faults {
		fail(fault)
	}
	return status
}

// readInput reads one input, at most maxInput bytes.
func readInput(name string, stdin io.Reader) ([]byte, error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		stdin = f
	}
	b, err := io.ReadAll(io.LimitReader(stdin, maxInput+1))
	if err == nil && len(b) > maxInput {
		err = fmt.Errorf("more than %d bytes", maxInput)
	}
	return b, err
}
