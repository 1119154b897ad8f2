//go:build cgo

package tpmsim_test

import (
	"errors"
	"fmt"
	"log"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A program opens a TPM that is a Google Compute Engine machine's.
func ExampleOpen() {
	tpm, err := tpmsim.Open(tpmsim.Options{
		Seed:     []byte("machine 1"),
		Instance: tpmsim.DefaultInstance(),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer tpm.Close()

	ak := tpm.AKCertificate(tpmsim.RSA2048)
	fmt.Println("subject:", ak.Subject)
	fmt.Println("issuer: ", ak.Issuer)
	fmt.Println("root:   ", tpm.CA().Root().Subject)

	_, err = tpmsim.Open(tpmsim.Options{})
	fmt.Println("a second one is refused:", errors.Is(err, tpmsim.ErrInUse))
	// Output:
	// subject: CN=4242424242424242424,OU=tpmsim-project,O=Google Compute Engine,L=us-central1-a
	// issuer:  CN=tpmsim AK CA
	// root:    CN=tpmsim root
	// a second one is refused: true
}

// A test opens a TPM, uses it, and looks for objects left in it.
func ExampleNew() {
	t := &exampleTB{} // a test has its *testing.T
	defer t.end()

	tpm := tpmsim.New(t, tpmsim.Options{}) // closed when the test ends
	rsp, err := tpm2.GetRandom{BytesRequested: 16}.Execute(tpm)
	testkit.NoError(t, err)
	fmt.Println(len(rsp.RandomBytes.Buffer), "random bytes")
	left, err := tpmsim.LoadedHandles(tpm)
	testkit.NoError(t, err)
	fmt.Println(len(left), "handles left in the TPM")
	// Output:
	// 16 random bytes
	// 0 handles left in the TPM
}

// exampleTB stands in for a *testing.T, which examples do not have.
type exampleTB struct {
	testing.TB
	cleanup []func()
}

func (t *exampleTB) Helper()           {}
func (t *exampleTB) Fatal(args ...any) { log.Fatal(args...) }
func (t *exampleTB) Error(args ...any) { log.Fatal(args...) }
func (t *exampleTB) Cleanup(f func())  { t.cleanup = append(t.cleanup, f) }

func (t *exampleTB) end() {
	for _, f := range t.cleanup {
		f()
	}
}

// The TPM's NV memory holds a template, and TPM2_CreatePrimary makes the AK from it.
func ExampleTPM_AKTemplate() {
	tpm, err := tpmsim.Open(tpmsim.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer tpm.Close()

	ak, err := tpm2.CreatePrimary{
		PrimaryHandle: tpm2.TPMRHEndorsement,
		InPublic:      tpm2.BytesAs2B[tpm2.TPMTPublic](tpm.AKTemplate(tpmsim.RSA2048)),
	}.Execute(tpm)
	if err != nil {
		log.Fatal(err)
	}
	left, err := tpmsim.LoadedHandles(tpm)
	fmt.Printf("made %#x, loaded %#x, %v\n", uint32(ak.ObjectHandle), left, err)
	// Output:
	// made 0x80000000, loaded [0x80000000], <nil>
}

// A command fails, and the program's own cleaning up is seen.
func ExampleFaulty() {
	tpm, err := tpmsim.Open(tpmsim.Options{EKs: []tpmsim.Algorithm{}, AKs: []tpmsim.AK{}})
	if err != nil {
		log.Fatal(err)
	}
	defer tpm.Close()

	faulty := tpmsim.Faulty(tpm, tpmsim.AnswerAt(2, tpm2.TPMRCRetry))
	for range 3 {
		_, err := tpm2.GetRandom{BytesRequested: 4}.Execute(faulty)
		fmt.Println("retry:", errors.Is(err, tpm2.TPMRCRetry))
	}
	fmt.Println(faulty.Count(), "commands")
	// Output:
	// retry: false
	// retry: true
	// retry: false
	// 3 commands
}

// An AK certificate that carries the machine's identity as an other name, and one
// that no verifier may accept.
func ExampleCA_IssueAK() {
	tpm, err := tpmsim.Open(tpmsim.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer tpm.Close()
	ak := tpm.AKPublic(tpmsim.RSA2048)

	good, err := tpm.CA().IssueAK(ak, tpmsim.CertificateOptions{
		OtherName: &tpmsim.OtherName{
			Type:  oid.KubernetesUID,
			Value: []byte("\x0c\x09machine-1"), // UTF8String
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	bad, err := tpm.CA().IssueAK(ak, tpmsim.CertificateOptions{
		IsCA:        true,
		ExtKeyUsage: []oid.OID{oid.TCGKpEKCertificate},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(good.IsCA, good.UnknownExtKeyUsage)
	fmt.Println(bad.IsCA, bad.UnknownExtKeyUsage)
	// Output:
	// false [2.23.133.8.3]
	// true [2.23.133.8.1]
}
