package tpmop

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/tpmlab"
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
		if err != nil {
			t.Fatal(err)
		}
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

func TestReadNVThatIsNotForUs(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	tpmlab.DefineNV(t, tpm, testIndex, tpm2.TPMANV{OwnerWrite: true, OwnerRead: true, NT: tpm2.TPMNTOrdinary}, 8, []byte("12345678"))
	_, err := readIndex(t, tpm, testIndex)
	var rc tpm2.TPMRC
	if !errors.As(err, &rc) || rc != tpm2.TPMRCAuthUnavailable {
		t.Errorf("index without AUTHREAD: got %v, want TPM_RC_AUTH_UNAVAILABLE", err)
	}
	tpmlab.DefineNV(t, tpm, testIndex+1, tpm2.TPMANV{OwnerWrite: true, AuthRead: true, NT: tpm2.TPMNTOrdinary}, 8, nil)
	if _, err := readIndex(t, tpm, testIndex+1); !errors.Is(err, tpm2.TPMRCNVUninitialized) {
		t.Errorf("index never written: got %v, want TPM_RC_NV_UNINITIALIZED", err)
	}
}

func TestReadNVFromABrokenTPM(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	tpmlab.WriteNV(t, tpm, testIndex, bytes.Repeat([]byte{7}, 100))
	zero := func(b []byte) { copy(b, make([]byte, len(b))) }
	for name, a := range map[string]*tpmlab.Altered{
		"no buffer":        {TPM: tpm, Code: tpm2.TPMCCGetCapability, Alter: func(rsp []byte) { zero(rsp[len(rsp)-4:]) }},
		"another property": {TPM: tpm, Code: tpm2.TPMCCGetCapability, Alter: func(rsp []byte) { rsp[len(rsp)-5] ^= 1 }},
		"another index":    {TPM: tpm, Code: tpm2.TPMCCNVReadPublic, Alter: func(rsp []byte) { rsp[15] ^= 2 }},
		"less data":        {TPM: tpm, Code: tpm2.TPMCCNVRead, Alter: func(rsp []byte) { rsp[15]-- }},
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
