package tpmkey

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

const ownIndex tpm2.TPMHandle = 0x01800001

func checkNVCertificateIs(t testing.TB, tpm *tpmsim.TPM, want []byte) {
	t.Helper()
	if got, err := ReadNVCertificate(t.Context(), tpm, ownIndex); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, %v, want %d", len(got), err, len(want))
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

func TestNVCertificate(t *testing.T) {
	for name, tpm := range map[string]*tpmsim.TPM{"simulator": tpmlab.NewTPM(t), "swtpm": tpmsim.Swtpm(t, tpmlab.Bare())} {
		t.Run(name, func(t *testing.T) {
			for _, password := range [][]byte{nil, []byte("owner's")} {
				if password != nil {
					tpmlab.SetHierarchyPassword(t, tpm, tpm2.TPMRHOwner, nil, password)
				}
				opts := NVCertificateOptions{OwnerPassword: hidden(password)}
				if _, err := ReadNVCertificate(t.Context(), tpm, ownIndex); !errors.Is(err, ErrNVIndexNotFound) {
					t.Errorf("before: got %v, want ErrNVIndexNotFound", err)
				}
				for _, extra := range []int{10, 12, 600, 1400, 1400, 10} { // in place, larger, in two commands, smaller
					der := tpmlab.CertificateOf(t, extra)
					testkit.NoError(t, WriteNVCertificate(t.Context(), tpm, ownIndex, der, opts))
					testkit.NoError(t, tpm.Reset())
					checkNVCertificateIs(t, tpm, der)
				}
				if err := tpm.DeleteNV(ownIndex); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// NV memory wears out: the same certificate is not written again.
func TestNVCertificateIsWrittenOnce(t *testing.T) {
	tpm := tpmsim.Faulty(tpmlab.NewTPM(t), nil)
	der := tpmlab.CertificateOf(t, 1400)
	for range 2 {
		testkit.NoError(t, WriteNVCertificate(t.Context(), tpm, ownIndex, der, NVCertificateOptions{}))
	}
	if n := tpmlab.Count(tpm, tpm2.TPMCCNVWrite); n != 2 {
		t.Errorf("%d writes, want 2, one for each half", n)
	}
}

func TestWriteNVCertificateRefuses(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	der := tpmlab.CertificateOf(t, 10)
	for name, tt := range map[string]struct {
		index tpm2.TPMHandle
		der   []byte
		want  string
	}{
		"nothing":             {ownIndex, nil, "0 bytes"},
		"no certificate":      {ownIndex, []byte("certificate"), "x509"},
		"bytes after":         {ownIndex, append(bytes.Clone(der), 0), "x509"},
		"cut short":           {ownIndex, der[:len(der)-1], "x509"},
		"over our limit":      {ownIndex, tpmlab.CertificateOf(t, maxNVCertificateSize), "want 1 to 16384"},
		"over the TPM's":      {ownIndex, tpmlab.CertificateOf(t, 2048), "at most 2048"},
		"not an NV index":     {0x81000001, der, "not an NV index"},
		"a handle of nothing": {0, der, "not an NV index"},
	} {
		t.Run(name, func(t *testing.T) {
			err := WriteNVCertificate(t.Context(), tpm, tt.index, tt.der, NVCertificateOptions{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: got %v, want %q", name, err, tt.want)
			}
		})
	}
	if _, err := ReadNVCertificate(t.Context(), tpm, ownIndex); !errors.Is(err, ErrNVIndexNotFound) {
		t.Errorf("a refusal left something: %v", err)
	}
	if err := WriteNVCertificate(t.Context(), nil, ownIndex, der, NVCertificateOptions{}); err == nil {
		t.Error("no TPM: no error")
	}
}

func TestNVCertificateLeavesOthersAlone(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	der := tpmlab.CertificateOf(t, 10)
	tpmlab.WriteNV(t, tpm, ownIndex, []byte("another's"))
	if err := WriteNVCertificate(t.Context(), tpm, ownIndex, der, NVCertificateOptions{}); !errors.Is(err, errNVIndexTaken) {
		t.Errorf("write: got %v, want errNVIndexTaken", err)
	}
	got, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) ([]byte, error) { return tpmop.ReadNV(ctx, h, ownIndex) })
	if err != nil || string(got) != "another's" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := ReadNVCertificate(t.Context(), tpm, ownIndex); err == nil {
		t.Error("reading what is no certificate: no error")
	}
	tpmlab.WriteNV(t, tpm, ownIndex, append(bytes.Clone(der), 0, 0, 0))
	checkNVCertificateIs(t, tpm, der)
}

func TestNVCertificateOwnerPassword(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	first, second := tpmlab.CertificateOf(t, 10), tpmlab.CertificateOf(t, 1400)
	testkit.NoError(t, WriteNVCertificate(t.Context(), tpm, ownIndex, first, NVCertificateOptions{}))
	tpmlab.SetHierarchyPassword(t, tpm, tpm2.TPMRHOwner, nil, []byte("owner's"))
	for _, password := range [][]byte{nil, []byte("guess")} {
		opts := NVCertificateOptions{OwnerPassword: hidden(password)}
		if err := WriteNVCertificate(t.Context(), tpm, ownIndex, second, opts); !errors.Is(err, tpmop.ErrHierarchyPassword) {
			t.Errorf("write: got %v, want ErrHierarchyPassword", err)
		}
	}
	checkNVCertificateIs(t, tpm, first)
}

// Every command fails in every way. Afterwards there is the previous certificate, the new one, or
// none; and the next run completes it.
func TestNVCertificateWholeOrNotAtAll(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	for _, extra := range []int{12, 1400} {
		total := 1
		for n := 0; n <= total; n++ { // with n = 0 nothing fails
			for name, faults := range map[string]tpmsim.Faults{
				"not sent": tpmsim.FailAt(n, nil), "response lost": tpmsim.LoseAt(n),
				"refused": tpmsim.AnswerAt(n, tpm2.TPMRCFailure), "connection lost": tpmsim.DropAt(n),
			} {
				before, after := tpmlab.CertificateOf(t, 10), tpmlab.CertificateOf(t, extra)
				testkit.NoError(t, WriteNVCertificate(t.Context(), tpm, ownIndex, before, NVCertificateOptions{}))
				faulty := tpmsim.Faulty(tpm, faults)
				err := WriteNVCertificate(t.Context(), faulty, ownIndex, after, NVCertificateOptions{})
				if n == 0 {
					total = faulty.Count()
				}
				got, readErr := ReadNVCertificate(t.Context(), tpm, ownIndex)
				switch {
				case err != nil && n == 0, err == nil && n > 0 && !optionalRead(faulty, n), err == nil && !bytes.Equal(got, after):
					t.Errorf("%d, command %d %s: got error %v", extra, n, name, err)
				case bytes.Equal(got, before), bytes.Equal(got, after):
				case !errors.Is(readErr, ErrNVIndexNotFound) && !errors.Is(readErr, ErrNVCertificateIncomplete):
					t.Errorf("%d, command %d %s: got %d bytes, %v", extra, n, name, len(got), readErr)
				}
				if err := WriteNVCertificate(t.Context(), tpm, ownIndex, after, NVCertificateOptions{}); err != nil {
					t.Fatalf("%d, command %d %s, then again: %v", extra, n, name, err)
				}
				checkNVCertificateIs(t, tpm, after)
			}
		}
	}
}

// optionalRead: the first reading only saves writing.
func optionalRead(tpm *tpmsim.FaultyTPM, n int) bool {
	for _, code := range tpm.Commands()[:n-1] {
		if code == tpm2.TPMCCNVWrite || code == tpm2.TPMCCNVUndefineSpace {
			return false
		}
	}
	return true
}

// The certificate is read back and compared.
func TestNVCertificateIsReadBack(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	liar := &tpmlab.Altered{TPM: tpm, Code: tpm2.TPMCCNVRead, Alter: func(rsp []byte) { rsp[40] ^= 1 }}
	if err := WriteNVCertificate(t.Context(), liar, ownIndex, tpmlab.CertificateOf(t, 10), NVCertificateOptions{}); err == nil {
		t.Error("no error")
	}
	if _, err := ReadNVCertificate(t.Context(), tpm, ownIndex); !errors.Is(err, ErrNVIndexNotFound) {
		t.Errorf("got %v, want ErrNVIndexNotFound", err)
	}
}

// tpm2-tools read it, and OpenSSL.
func TestNVCertificateWithTools(t *testing.T) {
	p := startTPMPrograms(t)
	testkit.NoError(t, WriteNVCertificate(t.Context(), p.tpm, ownIndex, tpmlab.CertificateOf(t, 1400), NVCertificateOptions{}))
	p.run("tpm2_nvread -C 0x01800001 -o certificate 0x01800001")
	p.run("openssl x509 -inform DER -in certificate -noout -subject")
}

// A TPM that spares its memory is waited for: the certificate is written whole, not given up.
func TestNVCertificateOfABusyTPM(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	owner := NVCertificateOptions{OwnerPassword: hidden([]byte("owner's"))}
	tpmlab.SetHierarchyPassword(t, tpm, tpm2.TPMRHOwner, nil, owner.OwnerPassword.Reveal())
	der := tpmlab.CertificateOf(t, 1400) // in two commands
	tpmlab.WarnEach(t, tpm, func(t *testing.T, busy transport.TPM) error {
		err := WriteNVCertificate(t.Context(), busy, ownIndex, der, owner)
		return errors.Join(err, tpm.DeleteNV(ownIndex))
	})
}

func TestNVWriterIsNotShown(t *testing.T) {
	password := []byte("owner-pass-1234")
	testkit.CheckSecrets(t, nvWriter{password: hidden(password)}, password)
}
