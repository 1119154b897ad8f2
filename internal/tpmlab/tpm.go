package tpmlab

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/tpmsim"
)

// NewTPM is a fresh simulator with nothing provisioned.
func NewTPM(t testing.TB) *tpmsim.TPM {
	t.Helper()
	return tpmsim.New(t, Bare())
}

// Bare are the options of such a simulator.
func Bare() tpmsim.Options {
	return tpmsim.Options{EKs: []tpmsim.Algorithm{}, AKs: []tpmsim.AK{}}
}

// CheckNothingLoaded fails the test if an object or a session is in the TPM.
func CheckNothingLoaded(t testing.TB, tpm transport.TPM) {
	t.Helper()
	if left := LoadedHandles(t, tpm); len(left) != 0 {
		t.Errorf("still loaded: %x", left)
	}
}

// LoadedHandles are the objects and sessions in the TPM.
func LoadedHandles(t testing.TB, tpm transport.TPM) []tpm2.TPMHandle {
	t.Helper()
	all, err := tpmsim.LoadedHandles(tpm)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Altered is a TPM whose responses to one command a test alters in place.
type Altered struct {
	transport.TPM
	Code  tpm2.TPMCC
	Alter func(response []byte)
}

// Send answers one command.
func (a *Altered) Send(command []byte) ([]byte, error) {
	rsp, err := a.TPM.Send(command)
	if err == nil && tpm2.TPMCC(binary.BigEndian.Uint32(command[6:])) == a.Code {
		a.Alter(rsp)
	}
	return rsp, err
}

// Count says how many commands of one code were sent.
func Count(tpm *tpmsim.FaultyTPM, code tpm2.TPMCC) int {
	n := 0
	for _, c := range tpm.Commands() {
		if c == code {
			n++
		}
	}
	return n
}

// DefineNV makes an NV index with attributes of its own, and writes data to it.
func DefineNV(t testing.TB, tpm transport.TPM, index tpm2.TPMHandle, attributes tpm2.TPMANV, size int, data []byte) {
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

// WriteAzureNV makes an NV index as Azure's confidential machines have them: by the platform, and
// with a password of its own. The attributes say by whom else, and how, it may be read.
func WriteAzureNV(t testing.TB, tpm transport.TPM, index tpm2.TPMHandle, attributes tpm2.TPMANV, data []byte) {
	t.Helper()
	attributes.AuthWrite, attributes.PlatformCreate = true, true
	password := []byte("of the platform")
	if _, err := (tpm2.NVDefineSpace{AuthHandle: tpm2.TPMRHPlatform, Auth: tpm2.TPM2BAuth{Buffer: password}, PublicInfo: tpm2.New2B(tpm2.TPMSNVPublic{
		NVIndex: index, NameAlg: tpm2.TPMAlgSHA256, Attributes: attributes, DataSize: uint16(len(data))})}).Execute(tpm); err != nil {
		t.Fatal(err)
	}
	const chunk = 512
	for at := 0; at < len(data); at += chunk {
		pub, err := tpm2.NVReadPublic{NVIndex: index}.Execute(tpm) // the first write changes the Name
		if err != nil {
			t.Fatal(err)
		}
		write := tpm2.NVWrite{
			AuthHandle: tpm2.AuthHandle{Handle: index, Name: pub.NVName, Auth: tpm2.PasswordAuth(password)},
			NVIndex:    tpm2.NamedHandle{Handle: index, Name: pub.NVName},
			Data:       tpm2.TPM2BMaxNVBuffer{Buffer: data[at:min(at+chunk, len(data))]}, Offset: uint16(at),
		}
		if _, err := write.Execute(tpm); err != nil {
			t.Fatal(err)
		}
	}
}

// WriteNV writes an NV index as the platform.
func WriteNV(t testing.TB, tpm *tpmsim.TPM, index tpm2.TPMHandle, data []byte) {
	t.Helper()
	if err := tpm.WriteNV(index, data); err != nil {
		t.Fatal(err)
	}
}

// Persist puts a primary key from a template at a persistent handle.
func Persist(t testing.TB, tpm transport.TPM, hierarchy tpm2.TPMHandle, template *tpm2.TPMTPublic, handle tpm2.TPMHandle) {
	t.Helper()
	key, err := tpm2.CreatePrimary{PrimaryHandle: hierarchy, InPublic: tpm2.New2B(*template)}.Execute(tpm)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = (tpm2.EvictControl{
		Auth:             tpm2.TPMRHOwner,
		ObjectHandle:     &tpm2.NamedHandle{Handle: key.ObjectHandle, Name: key.Name},
		PersistentHandle: handle,
	}).Execute(tpm); err != nil {
		t.Fatal(err)
	}
	if _, err := (tpm2.FlushContext{FlushHandle: key.ObjectHandle}).Execute(tpm); err != nil {
		t.Fatal(err)
	}
}

// SetHierarchyPassword changes a hierarchy's password.
func SetHierarchyPassword(t testing.TB, tpm transport.TPM, hierarchy tpm2.TPMHandle, old, password []byte) {
	t.Helper()
	_, err := tpm2.HierarchyChangeAuth{
		AuthHandle: tpm2.AuthHandle{Handle: hierarchy, Auth: tpm2.PasswordAuth(old)}, NewAuth: tpm2.TPM2BAuth{Buffer: password},
	}.Execute(tpm)
	if err != nil {
		t.Fatal(err)
	}
}

// FakeNV is a TPM that has NV indexes and nothing else, larger ones than a simulator's.
type FakeNV map[tpm2.TPMHandle][]byte

// Send answers one command.
func (f FakeNV) Send(command []byte) ([]byte, error) {
	tag, body := uint16(tpm2.TPMSTNoSessions), []byte(nil)
	at := func(n int) uint32 { return binary.BigEndian.Uint32(command[n:]) }
	capability := func(c tpm2.TPMCap, u tpm2.TPMUCapabilities) []byte {
		return append([]byte{0}, tpm2.Marshal(tpm2.TPMSCapabilityData{Capability: c, Data: u})...)
	}
	switch code := tpm2.TPMCC(at(6)); {
	case code == tpm2.TPMCCGetCapability && tpm2.TPMCap(at(10)) == tpm2.TPMCapHandles:
		body = capability(tpm2.TPMCapHandles, tpm2.NewTPMUCapabilities(tpm2.TPMCapHandles, &tpm2.TPMLHandle{Handle: slices.Sorted(maps.Keys(f))}))
	case code == tpm2.TPMCCGetCapability:
		property := tpm2.TPMSTaggedProperty{Property: tpm2.TPMPT(at(14)), Value: 2048}
		body = capability(tpm2.TPMCapTPMProperties, tpm2.NewTPMUCapabilities(tpm2.TPMCapTPMProperties,
			&tpm2.TPMLTaggedTPMProperty{TPMProperty: []tpm2.TPMSTaggedProperty{property}}))
	case code == tpm2.TPMCCNVReadPublic:
		index := tpm2.TPMHandle(at(10))
		area := tpm2.TPMSNVPublic{NVIndex: index, NameAlg: tpm2.TPMAlgSHA256, Attributes: tpm2.TPMANV{AuthRead: true, NoDA: true}, DataSize: uint16(len(f[index]))}
		body = append(tpm2.Marshal(tpm2.New2B(area)), tpm2.Marshal(tpm2.TPM2BName{Buffer: DigestName(1)})...)
	case code == tpm2.TPMCCNVRead:
		tag = uint16(tpm2.TPMSTSessions)
		rest := command[22+at(18):]
		size, offset := binary.BigEndian.Uint16(rest), binary.BigEndian.Uint16(rest[2:])
		read := tpm2.Marshal(tpm2.TPM2BMaxNVBuffer{Buffer: f[tpm2.TPMHandle(at(14))][offset : offset+size]})
		body = slices.Concat(binary.BigEndian.AppendUint32(nil, uint32(len(read))), read, []byte{0, 0, 1, 0, 0})
	default:
		return nil, errors.New("not of a fake")
	}
	out := binary.BigEndian.AppendUint16(nil, tag)
	out = binary.BigEndian.AppendUint32(out, uint32(10+len(body)))
	return append(binary.BigEndian.AppendUint32(out, 0), body...), nil
}

// DigestName is a name over SHA-256 whose digest is one repeated byte.
func DigestName(fill byte) []byte {
	return append([]byte{0, 0x0b}, bytes.Repeat([]byte{fill}, 32)...)
}

// NoTPM is a device that is not there.
type NoTPM struct{}

// Send answers one command.
func (NoTPM) Send([]byte) ([]byte, error) { return nil, errors.New("no such device") }

// ExtendPCR extends a PCR of SHA-256.
func ExtendPCR(t testing.TB, tpm transport.TPM, pcr tpm2.TPMHandle) {
	t.Helper()
	sum := sha256.Sum256(nil)
	_, err := tpm2.PCRExtend{
		PCRHandle: tpm2.AuthHandle{Handle: pcr, Auth: tpm2.PasswordAuth(nil)},
		Digests:   tpm2.TPMLDigestValues{Digests: []tpm2.TPMTHA{{HashAlg: tpm2.TPMAlgSHA256, Digest: sum[:]}}},
	}.Execute(tpm)
	if err != nil {
		t.Fatal(err)
	}
}

// ForgetPasswords has a TPM forget wrong passwords (TPM2_DictionaryAttackLockReset, TPM 2.0
// Library, Part 3, 25.2), which go-tpm does not have.
func ForgetPasswords(t testing.TB, tpm transport.TPM) {
	t.Helper()
	lockout := []byte{0x40, 0x00, 0x00, 0x0a}
	session := []byte{0, 0, 0, 9, 0x40, 0x00, 0x00, 0x09, 0, 0, 0, 0, 0} // the empty password
	answer, err := tpm.Send(slices.Concat([]byte{0x80, 0x02, 0, 0, 0, 27, 0x00, 0x00, 0x01, 0x39}, lockout, session))
	if err != nil || len(answer) < 10 || !bytes.Equal(answer[6:10], make([]byte, 4)) {
		t.Fatalf("TPM2_DictionaryAttackLockReset: %x, %v", answer, err)
	}
}
