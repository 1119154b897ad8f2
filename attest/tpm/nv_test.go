package tpm

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/tpmsim"
)

const testIndex tpm2.TPMHandle = 0x01800001

func readIndex(t testing.TB, tpm transport.TPM, index tpm2.TPMHandle) ([]byte, error) {
	t.Helper()
	return do(t, tpm, func(ctx context.Context, h *handles) ([]byte, error) { return readNV(ctx, h, index) })
}

func readCertificate(t testing.TB, tpm transport.TPM, index tpm2.TPMHandle) ([]byte, error) {
	t.Helper()
	return do(t, tpm, func(ctx context.Context, h *handles) ([]byte, error) { return readNVCertificate(ctx, h, index) })
}

func TestReadNVInChunks(t *testing.T) {
	tpm := newTPM(t)
	for _, size := range []int{1, 1023, 1024, 1025, 2048} {
		want := make([]byte, size)
		rand.Read(want)
		writeNV(t, tpm, testIndex, want)
		faulty := tpmsim.Faulty(tpm, nil)
		got, err := readIndex(t, faulty, testIndex)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes: other ones came back", size)
		}
		if got, want := count(faulty, tpm2.TPMCCNVRead), (size+1023)/1024; got != want {
			t.Errorf("%d bytes: got %d reads, want %d", size, got, want)
		}
	}
}

func TestReadNVWithoutIndex(t *testing.T) {
	tpm := newTPM(t)
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
	tpm := newTPM(t)
	defineNV(t, tpm, testIndex, tpm2.TPMANV{OwnerWrite: true, OwnerRead: true, NT: tpm2.TPMNTOrdinary}, 8, []byte("12345678"))
	_, err := readIndex(t, tpm, testIndex)
	var rc tpm2.TPMRC
	if !errors.As(err, &rc) || rc != tpm2.TPMRCAuthUnavailable {
		t.Errorf("index without AUTHREAD: got %v, want TPM_RC_AUTH_UNAVAILABLE", err)
	}
	defineNV(t, tpm, testIndex+1, tpm2.TPMANV{OwnerWrite: true, AuthRead: true, NT: tpm2.TPMNTOrdinary}, 8, nil)
	if _, err := readIndex(t, tpm, testIndex+1); !errors.Is(err, tpm2.TPMRCNVUninitialized) {
		t.Errorf("index never written: got %v, want TPM_RC_NV_UNINITIALIZED", err)
	}
}

func TestReadNVFromABrokenTPM(t *testing.T) {
	tpm := newTPM(t)
	writeNV(t, tpm, testIndex, bytes.Repeat([]byte{7}, 100))
	zero := func(b []byte) { copy(b, make([]byte, len(b))) }
	for name, a := range map[string]*altered{
		"no buffer":        {tpm, tpm2.TPMCCGetCapability, func(rsp []byte) { zero(rsp[len(rsp)-4:]) }},
		"another property": {tpm, tpm2.TPMCCGetCapability, func(rsp []byte) { rsp[len(rsp)-5] ^= 1 }},
		"another index":    {tpm, tpm2.TPMCCNVReadPublic, func(rsp []byte) { rsp[15] ^= 2 }},
		"less data":        {tpm, tpm2.TPMCCNVRead, func(rsp []byte) { rsp[15]-- }},
	} {
		if b, err := readIndex(t, a, testIndex); err == nil {
			t.Errorf("%s: read %x", name, b)
		}
	}
}

func TestReadNVFailures(t *testing.T) {
	tpm := newTPM(t)
	writeNV(t, tpm, testIndex, make([]byte, 1500))
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

func TestReadNVCertificate(t *testing.T) {
	tpm := tpmsim.New(t, &tpmsim.Options{EKs: []tpmsim.Algorithm{}})
	want := tpm.AKCertificate(tpmsim.RSA2048).Raw
	got, err := readCertificate(t, tpm, GCERSA().CertificateIndex)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	writeNV(t, tpm, testIndex, append(header(want, true), make([]byte, 64)...))
	if got, err = readCertificate(t, tpm, testIndex); err != nil || !bytes.Equal(got, want) {
		t.Errorf("with header and padding: error %v", err)
	}
	writeNV(t, tpm, testIndex, append(bytes.Clone(want), 1))
	if _, err = readCertificate(t, tpm, testIndex); err == nil || !strings.Contains(err.Error(), "0x01800001") {
		t.Errorf("with another byte behind it: got %v, want an error that names the index", err)
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
	der := append([]byte{0x30, 0x81, 0x80}, bytes.Repeat([]byte{5}, 0x80)...)
	zeros, ones := make([]byte, 9), bytes.Repeat([]byte{0xff}, 9)
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for name, data := range map[string][]byte{
		"alone":                    der,
		"zeros behind":             join(der, zeros),
		"ones behind":              join(der, ones),
		"header":                   header(der, true),
		"header without inner tag": header(der, false),
		"header, padding outside":  join(header(der, true), ones),
		"header, padding inside":   header(join(der, zeros), true),
	} {
		got, err := trimNVCertificate(data)
		if err != nil || !bytes.Equal(got, der) {
			t.Errorf("%s: got %x, %v", name, got, err)
		}
	}
	for name, data := range map[string][]byte{
		"nothing":                   {},
		"padding alone":             zeros,
		"cut short":                 der[:len(der)-1],
		"text":                      []byte("-----BEGIN CERTIFICATE-----"),
		"indefinite length":         {0x30, 0x80, 0, 0},
		"length not minimal":        {0x30, 0x81, 0x01, 0x05},
		"other bytes behind":        join(der, []byte{1}),
		"mixed padding":             join(der, zeros, ones),
		"second certificate":        join(der, der),
		"header cut short":          {0x10, 0x01, 0x00, 0x00},
		"header over the end":       header(der, true)[:20],
		"header with zero size":     join([]byte{0x10, 0x01, 0x00, 0, 0}, der),
		"header of another type":    join([]byte{0x10, 0x01, 0x01, 0, byte(len(der))}, der),
		"header, other bytes after": join(header(der, true), []byte{1}),
	} {
		if got, err := trimNVCertificate(data); err == nil {
			t.Errorf("%s: got %x", name, got)
		}
	}
}

func FuzzTrimNVCertificate(f *testing.F) {
	der := append([]byte{0x30, 0x81, 0x80}, bytes.Repeat([]byte{5}, 0x80)...)
	for _, seed := range [][]byte{der, append(bytes.Clone(der), 0, 0), header(der, true), header(der, false), {0x10, 1, 0}, {0x30, 0x80}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		der, err := trimNVCertificate(data)
		if err != nil {
			return
		}
		if !bytes.Contains(data, der) {
			t.Fatalf("%x is not in %x", der, data)
		}
		again, err := trimNVCertificate(der)
		if err != nil || !bytes.Equal(again, der) {
			t.Fatalf("%x, taken out, gives %x, %v", der, again, err)
		}
	})
}
