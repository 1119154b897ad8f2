package tpmlab

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/internal/testkit"
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
	testkit.NoError(t, err)
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
	return len(slices.DeleteFunc(tpm.Commands(), func(c tpm2.TPMCC) bool { return c != code }))
}

// SwitchOff switches a hierarchy off until the next reset, as firmware can (TPM2_HierarchyControl,
// TPM 2.0 Library, Part 3, 24.3).
func SwitchOff(t testing.TB, tpm transport.TPM, hierarchy tpm2.TPMHandle) {
	t.Helper()
	Send(t, tpm, fmt.Sprintf("8002 00000020 00000121 4000000c 00000009 40000009 0000 00 0000 %08x 00", uint32(hierarchy)))
}

// ForgetPasswords has a TPM forget wrong passwords (TPM2_DictionaryAttackLockReset, TPM 2.0
// Library, Part 3, 25.2).
func ForgetPasswords(t testing.TB, tpm transport.TPM) {
	t.Helper()
	Send(t, tpm, "8002 0000001b 00000139 4000000a 00000009 40000009 0000 00 0000")
}

// Send sends a command that go-tpm does not have, in hexadecimal digits, which must succeed.
func Send(t testing.TB, tpm transport.TPM, digits string) {
	t.Helper()
	command, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	testkit.NoError(t, err)
	rsp, err := tpm.Send(command)
	if err != nil || len(rsp) < 10 || binary.BigEndian.Uint32(rsp[6:]) != 0 {
		t.Fatalf("%s: %x, %v", digits, rsp, err)
	}
}

// WarnEach has each command of run answered once with one of the warnings that pass, and expects
// that run succeeds all the same and leaves nothing in the TPM. The pauses take no time.
func WarnEach(t *testing.T, tpm transport.TPM, run func(t *testing.T, tpm transport.TPM) error) {
	t.Helper()
	warnings := []tpm2.TPMRC{tpm2.TPMRCRetry, tpm2.TPMRCYielded, tpm2.TPMRCTesting, tpm2.TPMRCNVRate, tpm2.TPMRCNVUnavailable, tpm2.TPMRCCanceled}
	synctest.Test(t, func(t *testing.T) {
		whole := tpmsim.Faulty(tpm, nil)
		testkit.NoError(t, run(t, whole))
		for n, code := range whole.Commands() {
			rc := warnings[n%len(warnings)]
			warned := tpmsim.Faulty(tpm, tpmsim.AnswerAt(n+1, rc))
			if err := run(t, warned); err != nil || warned.Count() != whole.Count()+1 {
				t.Errorf("%v to command %d (0x%x): %v, %d commands, want %d", rc, n+1, code, err, warned.Count(), whole.Count()+1)
			}
			CheckNothingLoaded(t, tpm)
		}
	})
}

// DefineNV makes an NV index of the owner's with attributes of its own, and writes data to it.
func DefineNV(t testing.TB, tpm transport.TPM, index tpm2.TPMHandle, attributes tpm2.TPMANV, size int, data []byte) {
	t.Helper()
	owner := tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth(nil)}
	defineNV(t, tpm, owner, nil, index, attributes, size)
	writeNV(t, tpm, owner, index, data)
}

// WriteAzureNV makes an NV index as Azure's confidential machines have them: by the platform, and
// with a password of its own. The attributes say by whom else, and how, it may be read.
func WriteAzureNV(t testing.TB, tpm transport.TPM, index tpm2.TPMHandle, attributes tpm2.TPMANV, data []byte) {
	t.Helper()
	attributes.AuthWrite, attributes.PlatformCreate = true, true
	password := []byte("of the platform")
	defineNV(t, tpm, tpm2.AuthHandle{Handle: tpm2.TPMRHPlatform, Auth: tpm2.PasswordAuth(nil)}, password, index, attributes, len(data))
	writeNV(t, tpm, tpm2.AuthHandle{Handle: index, Auth: tpm2.PasswordAuth(password)}, index, data)
}

func defineNV(t testing.TB, tpm transport.TPM, by tpm2.AuthHandle, password []byte, index tpm2.TPMHandle, attributes tpm2.TPMANV, size int) {
	t.Helper()
	area := tpm2.TPMSNVPublic{NVIndex: index, NameAlg: tpm2.TPMAlgSHA256, Attributes: attributes, DataSize: uint16(size)}
	_, err := tpm2.NVDefineSpace{AuthHandle: by, Auth: tpm2.TPM2BAuth{Buffer: password}, PublicInfo: tpm2.New2B(area)}.Execute(tpm)
	testkit.NoError(t, err)
}

func writeNV(t testing.TB, tpm transport.TPM, by tpm2.AuthHandle, index tpm2.TPMHandle, data []byte) {
	t.Helper()
	const chunk = 512
	for at := 0; at < len(data); at += chunk {
		pub, err := tpm2.NVReadPublic{NVIndex: index}.Execute(tpm) // the first write changes the Name
		testkit.NoError(t, err)
		if by.Handle == index {
			by.Name = pub.NVName
		}
		_, err = tpm2.NVWrite{AuthHandle: by, NVIndex: tpm2.NamedHandle{Handle: index, Name: pub.NVName},
			Data: tpm2.TPM2BMaxNVBuffer{Buffer: data[at:min(at+chunk, len(data))]}, Offset: uint16(at)}.Execute(tpm)
		testkit.NoError(t, err)
	}
}

// WriteNV writes an NV index as the platform.
func WriteNV(t testing.TB, tpm *tpmsim.TPM, index tpm2.TPMHandle, data []byte) {
	t.Helper()
	testkit.NoError(t, tpm.WriteNV(index, data))
}

// Persist puts a primary key from a template at a persistent handle.
func Persist(t testing.TB, tpm transport.TPM, hierarchy tpm2.TPMHandle, template *tpm2.TPMTPublic, handle tpm2.TPMHandle) {
	t.Helper()
	key, err := tpm2.CreatePrimary{PrimaryHandle: hierarchy, InPublic: tpm2.New2B(*template)}.Execute(tpm)
	testkit.NoError(t, err)
	_, err = tpm2.EvictControl{
		Auth:             tpm2.TPMRHOwner,
		ObjectHandle:     &tpm2.NamedHandle{Handle: key.ObjectHandle, Name: key.Name},
		PersistentHandle: handle,
	}.Execute(tpm)
	testkit.NoError(t, err)
	_, err = tpm2.FlushContext{FlushHandle: key.ObjectHandle}.Execute(tpm)
	testkit.NoError(t, err)
}

// SetHierarchyPassword changes a hierarchy's password.
func SetHierarchyPassword(t testing.TB, tpm transport.TPM, hierarchy tpm2.TPMHandle, old, password []byte) {
	t.Helper()
	_, err := tpm2.HierarchyChangeAuth{
		AuthHandle: tpm2.AuthHandle{Handle: hierarchy, Auth: tpm2.PasswordAuth(old)}, NewAuth: tpm2.TPM2BAuth{Buffer: password},
	}.Execute(tpm)
	testkit.NoError(t, err)
}

// DigestName is a name over SHA-256 whose digest is one repeated byte.
func DigestName(fill byte) []byte {
	return append([]byte{0, 0x0b}, bytes.Repeat([]byte{fill}, 32)...)
}

// ExtendedPCR is the value of a PCR of SHA-256 after one ExtendPCR.
func ExtendedPCR() []byte {
	sum := sha256.Sum256(nil)
	value := sha256.Sum256(append(make([]byte, 32), sum[:]...))
	return value[:]
}

// ExtendPCR extends a PCR of SHA-256.
func ExtendPCR(t testing.TB, tpm transport.TPM, pcr tpm2.TPMHandle) {
	t.Helper()
	sum := sha256.Sum256(nil)
	extend(t, tpm, pcr, sum[:])
}

func extend(t testing.TB, tpm transport.TPM, pcr tpm2.TPMHandle, digest []byte) {
	t.Helper()
	_, err := tpm2.PCRExtend{
		PCRHandle: tpm2.AuthHandle{Handle: pcr, Auth: tpm2.PasswordAuth(nil)},
		Digests:   tpm2.TPMLDigestValues{Digests: []tpm2.TPMTHA{{HashAlg: tpm2.TPMAlgSHA256, Digest: digest}}},
	}.Execute(tpm)
	testkit.NoError(t, err)
}
