package attest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-tpm-tools/simulator"
	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// newTPM is a fresh simulator without anything provisioned.
func newTPM(t testing.TB) transport.TPM {
	t.Helper()
	sim, err := simulator.Get()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sim.Close() })
	return transport.FromReadWriter(sim)
}

// checkNothingLoaded fails the test if an object or a session is in the TPM.
func checkNothingLoaded(t testing.TB, tpm transport.TPM) {
	t.Helper()
	if n := loaded(t, tpm); len(n) != 0 {
		t.Errorf("still loaded: %x", n)
	}
}

func loaded(t testing.TB, tpm transport.TPM) []tpm2.TPMHandle {
	t.Helper()
	var all []tpm2.TPMHandle
	for _, first := range []uint32{0x80000000, 0x02000000, 0x03000000} {
		rsp, err := tpm2.GetCapability{Capability: tpm2.TPMCapHandles, Property: first, PropertyCount: 64}.Execute(tpm)
		if err != nil {
			t.Fatal(err)
		}
		list, err := rsp.CapabilityData.Data.Handles()
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range list.Handle {
			if h>>24 == tpm2.TPMHandle(first>>24) {
				all = append(all, h)
			}
		}
	}
	return all
}

// scripted is a transport that a test steps into: before sees each command's
// code and number, from 1, and answers in the TPM's place if it gives a response
// or an error.
type scripted struct {
	transport.TPM
	mu     sync.Mutex
	codes  []tpm2.TPMCC
	before func(n int, code tpm2.TPMCC) ([]byte, error)
	after  func(n int, code tpm2.TPMCC, response []byte) ([]byte, error)
}

func (s *scripted) Send(command []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	code := tpm2.TPMCC(binary.BigEndian.Uint32(command[6:]))
	s.codes = append(s.codes, code)
	if s.before != nil {
		if rsp, err := s.before(len(s.codes), code); rsp != nil || err != nil {
			return rsp, err
		}
	}
	rsp, err := s.TPM.Send(command)
	if err == nil && s.after != nil {
		return s.after(len(s.codes), code, rsp)
	}
	return rsp, err
}

func (s *scripted) count(code tpm2.TPMCC) int {
	n := 0
	for _, c := range s.codes {
		if c == code {
			n++
		}
	}
	return n
}

// response is a TPM's answer with nothing but a response code.
func response(code tpm2.TPMRC) []byte {
	return binary.BigEndian.AppendUint32([]byte{0x80, 0x01, 0, 0, 0, 10}, uint32(code))
}

var errDropped = errors.New("connection dropped")

// do is SharedTPM.do for tests, with the result that f computes.
func do[T any](t testing.TB, tpm transport.TPM, f func(ctx context.Context, h *handles) (T, error)) (T, error) {
	t.Helper()
	var v T
	err := ShareTPM(tpm).do(t.Context(), func(h *handles) (err error) {
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

func mustSoftwareKey(t testing.TB, priv crypto.Signer) Key {
	t.Helper()
	k, err := SoftwareKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func mustTPMKey(t testing.TB, tpm transport.TPM, kind KeyKind) *TPMKey {
	t.Helper()
	k, err := CreateTPMKey(t.Context(), tpm, kind, nil)
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
	_, err := do(t, tpm, func(ctx context.Context, h *handles) (any, error) {
		k, err := createPrimary(ctx, h, hierarchy, nil, tpm2.Marshal(template))
		if err != nil {
			return nil, err
		}
		return tpm2.EvictControl{
			Auth:             tpm2.TPMRHOwner,
			ObjectHandle:     &tpm2.NamedHandle{Handle: k.handle, Name: tpm2.TPM2BName{Buffer: k.name}},
			PersistentHandle: handle,
		}.Execute(h.tpm)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// defineNV makes an NV index that everybody may read with the empty password,
// and writes data to it. A test's own attributes come instead.
func defineNV(t testing.TB, tpm transport.TPM, index tpm2.TPMHandle, data []byte, change ...func(*tpm2.TPMANV)) {
	t.Helper()
	attributes := tpm2.TPMANV{OwnerWrite: true, OwnerRead: true, AuthRead: true, NoDA: true, NT: tpm2.TPMNTOrdinary}
	for _, c := range change {
		c(&attributes)
	}
	area := tpm2.TPMSNVPublic{NVIndex: index, NameAlg: tpm2.TPMAlgSHA256, Attributes: attributes, DataSize: uint16(len(data))}
	if _, err := (tpm2.NVDefineSpace{AuthHandle: tpm2.TPMRHOwner, PublicInfo: tpm2.New2B(area)}).Execute(tpm); err != nil {
		t.Fatal(err)
	}
	pub, err := tpm2.NVReadPublic{NVIndex: index}.Execute(tpm)
	if err != nil {
		t.Fatal(err)
	}
	offset := 0
	for chunk := range slices.Chunk(data, 512) {
		write := tpm2.NVWrite{
			AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth(nil)},
			NVIndex:    tpm2.NamedHandle{Handle: index, Name: pub.NVName},
			Data:       tpm2.TPM2BMaxNVBuffer{Buffer: chunk}, Offset: uint16(offset),
		}
		if _, err := write.Execute(tpm); err != nil {
			t.Fatal(err)
		}
		offset += len(chunk)
	}
}
