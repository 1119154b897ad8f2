package tpmop

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/tpmsim"
)

// newTPM is a fresh simulator with nothing provisioned.
func newTPM(t testing.TB) *tpmsim.TPM {
	t.Helper()
	return tpmsim.New(t, bare())
}

func bare() tpmsim.Options {
	return tpmsim.Options{EKs: []tpmsim.Algorithm{}, AKs: []tpmsim.AK{}}
}

// altered is a TPM whose responses to one command a test alters in place.
type altered struct {
	transport.TPM
	code  tpm2.TPMCC
	alter func(response []byte)
}

func (a *altered) Send(command []byte) ([]byte, error) {
	rsp, err := a.TPM.Send(command)
	if err == nil && tpm2.TPMCC(binary.BigEndian.Uint32(command[6:])) == a.code {
		a.alter(rsp)
	}
	return rsp, err
}

// count says how many commands of one code were sent.
func count(tpm *tpmsim.FaultyTPM, code tpm2.TPMCC) int {
	n := 0
	for _, c := range tpm.Commands() {
		if c == code {
			n++
		}
	}
	return n
}

// do is Shared.do for tests, with the result that f computes.
func do[T any](t testing.TB, tpm transport.TPM, f func(ctx context.Context, h *Handles) (T, error)) (T, error) {
	t.Helper()
	var v T
	err := Share(tpm).Do(t.Context(), func(h *Handles) (err error) {
		v, err = f(t.Context(), h)
		return err
	})
	return v, err
}

// defineNV makes an NV index with attributes of its own, and writes data to it.
func defineNV(t testing.TB, tpm transport.TPM, index tpm2.TPMHandle, attributes tpm2.TPMANV, size int, data []byte) {
	t.Helper()
	area := tpm2.TPMSNVPublic{NVIndex: index, NameAlg: tpm2.TPMAlgSHA256, Attributes: attributes, DataSize: uint16(size)}
	if _, err := (tpm2.NVDefineSpace{AuthHandle: tpm2.TPMRHOwner, PublicInfo: tpm2.New2B(area)}).Execute(tpm); err != nil {
		t.Fatal(err)
	}
	if data == nil {
		return
	}
	pub, err := tpm2.NVReadPublic{NVIndex: index}.Execute(tpm)
	if err != nil {
		t.Fatal(err)
	}
	write := tpm2.NVWrite{
		AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth(nil)},
		NVIndex:    tpm2.NamedHandle{Handle: index, Name: pub.NVName},
		Data:       tpm2.TPM2BMaxNVBuffer{Buffer: data},
	}
	if _, err := write.Execute(tpm); err != nil {
		t.Fatal(err)
	}
}

func writeNV(t testing.TB, tpm *tpmsim.TPM, index tpm2.TPMHandle, data []byte) {
	t.Helper()
	if err := tpm.WriteNV(index, data); err != nil {
		t.Fatal(err)
	}
}
