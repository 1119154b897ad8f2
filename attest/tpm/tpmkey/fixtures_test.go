package tpmkey

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmop"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func setHierarchyPassword(t testing.TB, tpm transport.TPM, hierarchy tpm2.TPMHandle, old, password []byte) {
	t.Helper()
	_, err := tpm2.HierarchyChangeAuth{
		AuthHandle: tpmop.WithPassword(hierarchy, nil, old), NewAuth: tpm2.TPM2BAuth{Buffer: password},
	}.Execute(tpm)
	if err != nil {
		t.Fatal(err)
	}
}

func digestName(fill byte) []byte {
	return append([]byte{0, 0x0b}, bytes.Repeat([]byte{fill}, 32)...)
}

func readAll(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// badPassword is one that no TPM takes.
var badPassword = []byte("a\x00b")

// fakeNV is a TPM that has NV indexes and nothing else, larger ones than a simulator's.
type fakeNV map[tpm2.TPMHandle][]byte

func (f fakeNV) Send(command []byte) ([]byte, error) {
	tag, body := uint16(tpm2.TPMSTNoSessions), []byte(nil)
	u16 := func(v int) { body = binary.BigEndian.AppendUint16(body, uint16(v)) }
	u32 := func(v uint32) { body = binary.BigEndian.AppendUint32(body, v) }
	at := func(n int) uint32 { return binary.BigEndian.Uint32(command[n:]) }
	switch code := tpm2.TPMCC(at(6)); {
	case code == tpm2.TPMCCGetCapability && at(10) == uint32(tpm2.TPMCapHandles):
		var all []tpm2.TPMHandle
		for index := range f {
			all = append(all, index)
		}
		slices.Sort(all)
		body = append(body, 0)
		u32(at(10))
		u32(uint32(len(all)))
		for _, index := range all {
			u32(uint32(index))
		}
	case code == tpm2.TPMCCGetCapability:
		body = append(body, 0)
		u32(at(10))
		u32(1)
		u32(at(14))
		u32(tpmop.MaxNVChunk)
	case code == tpm2.TPMCCNVReadPublic:
		u16(14)
		u32(at(10))
		u16(int(tpm2.TPMAlgSHA256))
		u32(0)
		u16(0)
		u16(len(f[tpm2.TPMHandle(at(10))]))
		u16(34)
		body = append(body, digestName(1)...)
	case code == tpm2.TPMCCNVRead:
		tag = uint16(tpm2.TPMSTSessions)
		rest := command[22+at(18):]
		size, offset := binary.BigEndian.Uint16(rest), binary.BigEndian.Uint16(rest[2:])
		u32(uint32(size) + 2)
		u16(int(size))
		body = append(append(body, f[tpm2.TPMHandle(at(14))][offset:offset+size]...), 0, 0, 1, 0, 0)
	default:
		return nil, errors.New("not of a fake")
	}
	out := binary.BigEndian.AppendUint16(nil, tag)
	out = binary.BigEndian.AppendUint32(out, uint32(10+len(body)))
	return append(binary.BigEndian.AppendUint32(out, 0), body...), nil
}

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

// do is Shared.do for tests, with the result that f computes.
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

func mustTPMKey(t testing.TB, tpm transport.TPM, kind Kind) *Key {
	t.Helper()
	k, err := Create(t.Context(), tpm, kind, Options{})
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

func pemOf(ders ...[]byte) string {
	var out strings.Builder
	for _, der := range ders {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	return out.String()
}

// hidden is secret.New where a test has a variable of that name.
func hidden(b []byte) secret.Value[[]byte] { return secret.New(b) }

// softwareKeys are made once: RSA keys take time.
var softwareKeys = struct {
	rsa2048, rsa2048b, rsa1024    func() *rsa.PrivateKey
	p256, p256b, p384, p521, p224 func() *ecdsa.PrivateKey
}{
	rsa2048:  sync.OnceValue(func() *rsa.PrivateKey { return mustRSA(2048) }),
	rsa2048b: sync.OnceValue(func() *rsa.PrivateKey { return mustRSA(2048) }),
	rsa1024:  sync.OnceValue(func() *rsa.PrivateKey { return mustRSA(1024) }),
	p256:     sync.OnceValue(func() *ecdsa.PrivateKey { return mustECDSA(elliptic.P256()) }),
	p256b:    sync.OnceValue(func() *ecdsa.PrivateKey { return mustECDSA(elliptic.P256()) }),
	p384:     sync.OnceValue(func() *ecdsa.PrivateKey { return mustECDSA(elliptic.P384()) }),
	p521:     sync.OnceValue(func() *ecdsa.PrivateKey { return mustECDSA(elliptic.P521()) }),
	p224:     sync.OnceValue(func() *ecdsa.PrivateKey { return mustECDSA(elliptic.P224()) }),
}

func mustRSA(bits int) *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		panic(err)
	}
	return k
}

func mustECDSA(c elliptic.Curve) *ecdsa.PrivateKey {
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		panic(err)
	}
	return k
}

const testResidentAttributes = statement.AttributeFixedTPM | statement.AttributeFixedParent | statement.AttributeSensitiveDataOrigin |
	statement.AttributeUserWithAuth | statement.AttributeSign

var noScheme = statement.KeyScheme{Alg: tpm2.TPMAlgNull}

// publicArea is the public area of a key, parsed, so with Raw set.
func publicArea(t testing.TB, pub crypto.PublicKey, attributes statement.Attributes, scheme statement.KeyScheme) *statement.Public {
	t.Helper()
	p := &statement.Public{
		NameAlg: tpm2.TPMAlgSHA256, Attributes: attributes, Scheme: scheme,
		Symmetric: statement.SymmetricScheme{Alg: tpm2.TPMAlgNull},
	}
	switch k := pub.(type) {
	case *rsa.PublicKey:
		p.Type, p.KeyBits, p.Modulus = tpm2.TPMAlgRSA, uint16(k.Size()*8), k.N.Bytes()
		if k.E != 65537 {
			p.Exponent = uint32(k.E)
		}
	case *ecdsa.PublicKey:
		point, err := k.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		half := len(point) / 2
		p.Type, p.KDF = tpm2.TPMAlgECC, noScheme
		p.X, p.Y = point[1:1+half], point[1+half:]
		switch k.Curve {
		case elliptic.P256():
			p.Curve = tpm2.TPMECCNistP256
		case elliptic.P384():
			p.Curve = tpm2.TPMECCNistP384
		case elliptic.P521():
			p.Curve = tpm2.TPMECCNistP521
		}
	}
	return reparsed(t, p)
}

// reparsed brings Raw up to date with the fields.
func reparsed(t testing.TB, p *statement.Public) *statement.Public {
	t.Helper()
	raw, err := p.Marshal()
	if err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	again, err := statement.ParsePublic(raw)
	if err != nil {
		t.Fatalf("ParsePublic: %v", err)
	}
	return again
}

// expectCheck fails unless err is nil for "", or a *refusal.Error of that very check.
func expectCheck(t *testing.T, err error, want refusal.Check) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Fatalf("got %v, want no error", err)
		}
		return
	}
	var e *refusal.Error
	if !errors.Is(err, want) || !errors.As(err, &e) || e.Check != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	if e.Got == "" && e.Want == "" && e.Err == nil {
		t.Errorf("%v does not say why", err)
	}
}

func seq(elements ...[]byte) []byte { return element(asn1.SEQUENCE, bytes.Join(elements, nil)) }

func octets(v []byte) []byte { return element(asn1.OCTET_STRING, v) }

func element(tag asn1.Tag, content []byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(tag, func(b *cryptobyte.Builder) { b.AddBytes(content) })
	return b.BytesOrPanic()
}
