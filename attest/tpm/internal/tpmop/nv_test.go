package tpmop

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

const testIndex tpm2.TPMHandle = 0x01800001

func readIndex(t testing.TB, tpm transport.TPM, index tpm2.TPMHandle) ([]byte, error) {
	t.Helper()
	return do(t, tpm, func(ctx context.Context, h *Handles) ([]byte, error) { return ReadNV(ctx, h, index) })
}

func TestReadNVInChunks(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	for _, size := range []int{1, 1023, 1024, 1025, 2048} {
		want := make([]byte, size)
		rand.Read(want)
		tpmlab.WriteNV(t, tpm, testIndex, want)
		faulty := tpmsim.Faulty(tpm, nil)
		got, err := readIndex(t, faulty, testIndex)
		testkit.NoError(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes: other ones came back", size)
		}
		if got, want := tpmlab.Count(faulty, tpm2.TPMCCNVRead), (size+1023)/1024; got != want {
			t.Errorf("%d bytes: got %d reads, want %d", size, got, want)
		}
	}
}

func TestReadNVWithoutIndex(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	_, err := readIndex(t, tpm, testIndex)
	if !errors.Is(err, ErrNVIndexNotFound) || !errors.Is(err, tpm2.TPMRCHandle) || !strings.Contains(err.Error(), "0x01800001") {
		t.Errorf("got %v, want ErrNVIndexNotFound with the TPM's code and the index", err)
	}
	for _, index := range []tpm2.TPMHandle{0, 0x00ffffff, 0x02000000, 0x81000001} {
		if _, err := readIndex(t, tpm, index); err == nil || errors.Is(err, ErrNVIndexNotFound) {
			t.Errorf("0x%08x: got %v, want an error that it is no NV index", uint32(index), err)
		}
	}
}

// reading are the attributes of an index that the platform lets others read.
func reading(index, owner, noDA bool) tpm2.TPMANV {
	return tpm2.TPMANV{AuthRead: index, OwnerRead: owner, NoDA: noDA, NT: tpm2.TPMNTOrdinary}
}

// wrongPasswords is how many wrong passwords the TPM has counted.
func wrongPasswords(t *testing.T, tpm transport.TPM) uint32 {
	t.Helper()
	n, err := do(t, tpm, func(ctx context.Context, h *Handles) (uint32, error) {
		n, _, err := TPMProperty(ctx, h, tpm2.TPMPTLockoutCounter)
		return n, err
	})
	testkit.NoError(t, err)
	return n
}

// An index is read with its own empty password, or the owner's if it has a password of its own, as
// on Azure's confidential machines. No wrong password is ever counted.
func TestReadNVByWhoMay(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	want := bytes.Repeat([]byte{7}, 1900)
	for name, row := range map[string]struct {
		attributes tpm2.TPMANV
		reads      int
	}{
		"the owner too":                        {reading(true, true, true), 3},
		"the owner too, and wrong ones count":  {reading(true, true, false), 2},
		"the owner only":                       {reading(false, true, true), 2},
		"the owner only, and wrong ones count": {reading(false, true, false), 2},
	} {
		t.Run(name, func(t *testing.T) {
			tpmlab.WriteAzureNV(t, tpm, testIndex, row.attributes, want)
			t.Cleanup(func() {
				if err := tpm.DeleteNV(testIndex); err != nil {
					t.Error(err)
				}
			})
			faulty := tpmsim.Faulty(tpm, nil)
			got, err := readIndex(t, faulty, testIndex)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if got := tpmlab.Count(faulty, tpm2.TPMCCNVRead); got != row.reads {
				t.Errorf("%d reads, want %d", got, row.reads)
			}
			if n := wrongPasswords(t, tpm); n != 0 {
				t.Errorf("%d wrong passwords are counted", n)
			}
		})
	}
	// An index without a password is read, also if the owner has one.
	tpmlab.WriteNV(t, tpm, testIndex, want)
	tpmlab.SetHierarchyPassword(t, tpm, tpm2.TPMRHOwner, nil, []byte("the owner's"))
	if got, err := readIndex(t, tpm, testIndex); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// What cannot be read is an error that says who changes that, and no password is tried that
// counts if it is wrong.
func TestReadNVThatIsNotForUs(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	tpmlab.DefineNV(t, tpm, testIndex+1, tpm2.TPMANV{OwnerWrite: true, AuthRead: true, NoDA: true, NT: tpm2.TPMNTOrdinary}, 8, nil)
	if _, err := readIndex(t, tpm, testIndex+1); !errors.Is(err, tpm2.TPMRCNVUninitialized) {
		t.Errorf("index never written: got %v, want TPM_RC_NV_UNINITIALIZED", err)
	}
	tpmlab.DefineNV(t, tpm, testIndex+2, tpm2.TPMANV{OwnerWrite: true, PolicyRead: true, NT: tpm2.TPMNTOrdinary}, 8, []byte("12345678"))
	if _, err := readIndex(t, tpm, testIndex+2); err == nil || !strings.Contains(err.Error(), "the TPM's owner, who made it,") {
		t.Errorf("the owner's index: got %v", err)
	}
	tpmlab.SetHierarchyPassword(t, tpm, tpm2.TPMRHOwner, nil, []byte("the owner's"))
	for name, row := range map[string]struct {
		attributes tpm2.TPMANV
		reads      int
		want       error // of the TPM
		says       string
	}{
		"for the platform":                    {tpm2.TPMANV{PPRead: true, NoDA: true, NT: tpm2.TPMNTOrdinary}, 0, nil, "neither TPMA_NV_AUTHREAD nor TPMA_NV_OWNERREAD"},
		"a password that would count":         {reading(true, false, false), 0, nil, "TPMA_NV_AUTHREAD without TPMA_NV_NO_DA"},
		"a password of its own":               {reading(true, false, true), 1, tpm2.TPMRCBadAuth, "cannot be read with the empty password"},
		"two passwords":                       {reading(true, true, true), 2, ErrHierarchyPassword, "owner hierarchy has a password"},
		"two passwords, and wrong ones count": {reading(true, true, false), 1, ErrHierarchyPassword, "owner hierarchy has a password"},
	} {
		t.Run(name, func(t *testing.T) {
			tpmlab.WriteAzureNV(t, tpm, testIndex, row.attributes, []byte{1})
			t.Cleanup(func() {
				if err := tpm.DeleteNV(testIndex); err != nil {
					t.Error(err)
				}
			})
			faulty := tpmsim.Faulty(tpm, nil)
			_, err := readIndex(t, faulty, testIndex)
			if err == nil || row.want != nil && !errors.Is(err, row.want) {
				t.Fatalf("got %v, want %v", err, row.want)
			}
			for _, want := range []string{"0x01800001", "the platform's firmware, which made it,", row.says} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it", err, want)
				}
			}
			if got := tpmlab.Count(faulty, tpm2.TPMCCNVRead); got != row.reads {
				t.Errorf("%d reads, want %d", got, row.reads)
			}
			if n := wrongPasswords(t, tpm); n != 0 {
				t.Errorf("%d wrong passwords are counted", n)
			}
		})
	}
}

// A TPM that does not say how much it reads at a time, or says what cannot be, is asked for 512
// bytes, which all TPMs take.
func TestReadNVWithoutABufferSize(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	want := bytes.Repeat([]byte{7}, 1900)
	tpmlab.WriteNV(t, tpm, testIndex, want)
	says := func(size uint32) func([]byte) {
		return func(rsp []byte) { binary.BigEndian.PutUint32(rsp[len(rsp)-4:], size) }
	}
	for name, row := range map[string]struct {
		alter func(rsp []byte)
		reads int
	}{
		"as it is":          {func([]byte) {}, 2},
		"another property":  {func(rsp []byte) { rsp[len(rsp)-5] ^= 1 }, 4},
		"no such property":  {func(rsp []byte) { binary.BigEndian.PutUint32(rsp[6:], uint32(tpm2.TPMRCValue|0x2c0)) }, 4},
		"0":                 {says(0), 4},
		"more than any TPM": {says(2049), 4},
		"as much as can be": {says(1<<32 - 1), 4},
		"less than usual":   {says(256), 8},
	} {
		t.Run(name, func(t *testing.T) {
			faulty := tpmsim.Faulty(tpm, nil)
			got, err := readIndex(t, &tpmlab.Altered{TPM: faulty, Code: tpm2.TPMCCGetCapability, Alter: row.alter}, testIndex)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if got := tpmlab.Count(faulty, tpm2.TPMCCNVRead); got != row.reads {
				t.Errorf("%d reads, want %d", got, row.reads)
			}
		})
	}
	// Any other answer decides nothing.
	failing := &tpmlab.Altered{TPM: tpm, Code: tpm2.TPMCCGetCapability, Alter: func(rsp []byte) { binary.BigEndian.PutUint32(rsp[6:], uint32(tpm2.TPMRCFailure)) }}
	if _, err := readIndex(t, failing, testIndex); !errors.Is(err, tpm2.TPMRCFailure) {
		t.Errorf("got %v, want TPM_RC_FAILURE", err)
	}
}

func TestReadNVFromABrokenTPM(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	tpmlab.WriteNV(t, tpm, testIndex, bytes.Repeat([]byte{7}, 100))
	for name, a := range map[string]*tpmlab.Altered{
		"another index": {TPM: tpm, Code: tpm2.TPMCCNVReadPublic, Alter: func(rsp []byte) { rsp[15] ^= 2 }},
		"less data":     {TPM: tpm, Code: tpm2.TPMCCNVRead, Alter: func(rsp []byte) { rsp[15]-- }},
	} {
		t.Run(name, func(t *testing.T) {
			if b, err := readIndex(t, a, testIndex); err == nil {
				t.Errorf("%s: read %x", name, b)
			}
		})
	}
}

func TestReadNVFailures(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	tpmlab.WriteNV(t, tpm, testIndex, make([]byte, 1500))
	faulty := tpmsim.Faulty(tpm, nil)
	if _, err := readIndex(t, faulty, testIndex); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 4; n++ {
		faulty.SetFaults(tpmsim.FailAt(n, nil))
		if _, err := readIndex(t, faulty, testIndex); !errors.Is(err, tpmsim.ErrInjected) {
			t.Errorf("command %d not sent: got %v", n, err)
		}
	}
}

// header puts a TCG_PCCLIENT_STORED_CERT header before a certificate.
func header(der []byte, withTag bool) []byte {
	if withTag {
		der = append([]byte{0x10, 0x02}, der...)
	}
	return append([]byte{0x10, 0x01, 0x00, byte(len(der) >> 8), byte(len(der))}, der...)
}

func TestTrimNVCertificate(t *testing.T) {
	encoded := append([]byte{0x30, 0x81, 0x80}, bytes.Repeat([]byte{5}, 0x80)...)
	zeros, ones := make([]byte, 9), bytes.Repeat([]byte{0xff}, 9)
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for name, data := range map[string][]byte{
		"alone":                    encoded,
		"zeros after":              join(encoded, zeros),
		"ones after":               join(encoded, ones),
		"header":                   header(encoded, true),
		"header without inner tag": header(encoded, false),
		"header, padding outside":  join(header(encoded, true), ones),
		"header, padding inside":   header(join(encoded, zeros), true),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := der.TrimNVCertificate(data)
			if err != nil || !bytes.Equal(got, encoded) {
				t.Errorf("%s: got %x, %v", name, got, err)
			}
		})
	}
	for name, data := range map[string][]byte{
		"nothing":                   {},
		"padding alone":             zeros,
		"cut short":                 encoded[:len(encoded)-1],
		"text":                      []byte("-----BEGIN CERTIFICATE-----"),
		"indefinite length":         {0x30, 0x80, 0, 0},
		"length not minimal":        {0x30, 0x81, 0x01, 0x05},
		"other bytes after":         join(encoded, []byte{1}),
		"mixed padding":             join(encoded, zeros, ones),
		"second certificate":        join(encoded, encoded),
		"header cut short":          {0x10, 0x01, 0x00, 0x00},
		"header over the end":       header(encoded, true)[:20],
		"header with zero size":     join([]byte{0x10, 0x01, 0x00, 0, 0}, encoded),
		"header of another type":    join([]byte{0x10, 0x01, 0x01, 0, byte(len(encoded))}, encoded),
		"header, other bytes after": join(header(encoded, true), []byte{1}),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := der.TrimNVCertificate(data); err == nil {
				t.Errorf("%s: got %x", name, got)
			}
		})
	}
}

// An index that was made, and not written yet, is told from one that holds something else.
func TestTrimNVCertificateNotWrittenYet(t *testing.T) {
	for text, want := range map[string]bool{strings.Repeat("\x00", 9): true, strings.Repeat("\xff", 9): true, "\x00\xff": false, "": false} {
		_, err := der.TrimNVCertificate([]byte(text))
		if err == nil || strings.Contains(err.Error(), "bytes of padding") != want {
			t.Errorf("%x: got %v", text, err)
		}
	}
}

func FuzzTrimNVCertificate(f *testing.F) {
	encoded := append([]byte{0x30, 0x81, 0x80}, bytes.Repeat([]byte{5}, 0x80)...)
	for _, seed := range [][]byte{encoded, append(bytes.Clone(encoded), 0, 0), header(encoded, true), header(encoded, false), {0x10, 1, 0}, {0x30, 0x80}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		encoded, err := der.TrimNVCertificate(data)
		if err != nil {
			return
		}
		if !bytes.Contains(data, encoded) {
			t.Fatalf("%x is not in %x", encoded, data)
		}
		again, err := der.TrimNVCertificate(encoded)
		if err != nil || !bytes.Equal(again, encoded) {
			t.Fatalf("%x, taken out, gives %x, %v", encoded, again, err)
		}
	})
}
