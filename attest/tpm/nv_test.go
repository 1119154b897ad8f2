package tpm

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/internal/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmop"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func readCertificate(t testing.TB, tpm transport.TPM, index tpm2.TPMHandle) ([]byte, error) {
	t.Helper()
	return do(t, tpm, func(ctx context.Context, h *tpmop.Handles) ([]byte, error) {
		return tpmop.ReadNVCertificate(ctx, h, index)
	})
}

func TestReadNVCertificate(t *testing.T) {
	tpm := tpmsim.New(t, tpmsim.Options{EKs: []tpmsim.Algorithm{}})
	want := tpm.AKCertificate(tpmsim.RSA2048).Raw
	got, err := readCertificate(t, tpm, GCERSA().CertificateIndex)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	tpmlab.WriteNV(t, tpm, testIndex, append(header(want, true), make([]byte, 64)...))
	if got, err = readCertificate(t, tpm, testIndex); err != nil || !bytes.Equal(got, want) {
		t.Errorf("with header and padding: error %v", err)
	}
	tpmlab.WriteNV(t, tpm, testIndex, append(bytes.Clone(want), 1))
	if _, err = readCertificate(t, tpm, testIndex); err == nil || !strings.Contains(err.Error(), "0x01800001") {
		t.Errorf("with another byte after it: got %v, want an error that names the index", err)
	}
}
