package goattestation_test

import (
	"bytes"
	"crypto/rand"
	"fmt"

	goattest "github.com/google/go-attestation/attest"

	"github.com/nodeattest/nodeattest/tpmsim"
)

// A machine proves a key to a server by go-attestation alone. [Example] is the same machine's join.
func Example_alone() {
	machine := must(tpmsim.Open(tpmsim.Options{}))
	defer func() { _ = machine.Close() }()
	client := must(open(machine)) // on a machine: goattest.OpenTPM(nil)
	defer func() { _ = client.Close() }()

	// The machine's AK.
	ak := must(client.NewAK(nil))
	defer func() { _ = ak.Close(client) }()

	// The server: the AK is in the TPM with this EK, if its secret comes back.
	ek := must(client.EKs())[0]
	activation := goattest.ActivationParameters{EK: ek.Public, AK: ak.AttestationParameters()}
	secret, credential, err := activation.Generate()
	check(err)
	proof := must(ak.ActivateCredential(client, *credential))
	fmt.Println("AK in the TPM:", bytes.Equal(secret, proof))

	// The machine's key, certified by the AK over the server's nonce.
	nonce := make([]byte, 16)
	_ = must(rand.Read(nonce))
	key := must(client.NewKey(ak, &goattest.KeyConfig{Algorithm: goattest.ECDSA, Size: 256, QualifyingData: nonce}))
	defer func() { _ = key.Close() }()

	// The server: the key is in that TPM too.
	public := must(goattest.ParseAKPublic(ak.AttestationParameters().Public))
	parameters := key.CertificationParameters()
	err = parameters.Verify(goattest.VerifyOpts{Public: public.Public, Hash: public.Hash})
	fmt.Println("key in the TPM:", err == nil)
	// Output:
	// AK in the TPM: true
	// key in the TPM: true
}
