package tpm

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/binary"
	"sync"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/tpmop"
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

// checkNothingLoaded fails the test if an object or a session is in the TPM.
func checkNothingLoaded(t testing.TB, tpm transport.TPM) {
	t.Helper()
	if left := loadedHandles(t, tpm); len(left) != 0 {
		t.Errorf("still loaded: %x", left)
	}
}

func loadedHandles(t testing.TB, tpm transport.TPM) []tpm2.TPMHandle {
	t.Helper()
	all, err := tpmsim.LoadedHandles(tpm)
	if err != nil {
		t.Fatal(err)
	}
	return all
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

// do is tpmop.Shared.do for tests, with the result that f computes.
func do[T any](t testing.TB, tpm transport.TPM, f func(ctx context.Context, h *tpmop.Handles) (T, error)) (T, error) {
	t.Helper()
	var v T
	err := tpmop.Share(tpm).Do(t.Context(), func(h *tpmop.Handles) (err error) {
		v, err = f(t.Context(), h)
		return err
	})
	return v, err
}

func newECDSA(t testing.TB, c elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// softwareRSA is one key for each size, since they take long to make.
var softwareRSA = struct {
	sync.Mutex
	keys map[int]*rsa.PrivateKey
}{keys: map[int]*rsa.PrivateKey{}}

func newRSA(t testing.TB, bits int) *rsa.PrivateKey {
	t.Helper()
	softwareRSA.Lock()
	defer softwareRSA.Unlock()
	if k := softwareRSA.keys[bits]; k != nil {
		return k
	}
	k, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	softwareRSA.keys[bits] = k
	return k
}

func mustSoftwareKey(t testing.TB, priv crypto.Signer) tpmkey.Certifiable {
	t.Helper()
	k, err := tpmkey.SoftwareKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func mustTPMKey(t testing.TB, tpm transport.TPM, kind tpmkey.Kind) *tpmkey.Key {
	t.Helper()
	k, err := tpmkey.Create(t.Context(), tpm, kind, tpmkey.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// persist puts a primary key from a template at a persistent handle.
func persist(t testing.TB, tpm transport.TPM, hierarchy tpm2.TPMHandle, template *tpm2.TPMTPublic, handle tpm2.TPMHandle) {
	t.Helper()
	_, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (any, error) {
		k, err := tpmop.CreatePrimary(ctx, h, hierarchy, nil, tpm2.Marshal(template))
		if err != nil {
			return nil, err
		}
		return tpm2.EvictControl{
			Auth:             tpm2.TPMRHOwner,
			ObjectHandle:     &tpm2.NamedHandle{Handle: k.Handle, Name: tpm2.TPM2BName{Buffer: k.Name}},
			PersistentHandle: handle,
		}.Execute(h.TPM)
	})
	if err != nil {
		t.Fatal(err)
	}
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
