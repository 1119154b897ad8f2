package tpmkey

import (
	"bytes"
	"context"

	"encoding/binary"

	"errors"

	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// certificateOfSize is a certificate of exactly so many bytes.
func certificateOfSize(t *testing.T, size int) []byte {
	t.Helper()
	for extra := max(0, size-400); ; { // signatures differ in length
		der := tpmlab.CertificateOf(t, extra)
		if len(der) == size {
			return der
		}
		extra = max(0, extra+size-len(der))
	}
}

func TestSizesOfNVCertificates(t *testing.T) {
	if err := checkNVCertificate(certificateOfSize(t, maxNVCertificateSize)); err != nil {
		t.Errorf("the largest: %v", err)
	}
	if err := checkNVCertificate(certificateOfSize(t, maxNVCertificateSize+1)); err == nil {
		t.Error("one byte more is accepted")
	}
	for name, c := range map[string]struct {
		content []byte
		want    error
	}{
		"nothing":               {nil, nil},
		"one byte of an end":    {[]byte{0xff}, ErrNVCertificateIncomplete},
		"an end":                {bytes.Repeat([]byte{0xff}, 256), ErrNVCertificateIncomplete},
		"a list of nothing":     {[]byte{0x30, 0}, nil},
		"a list and an end":     {append([]byte{0x30, 3, 2, 1, 7}, bytes.Repeat([]byte{0xff}, 251)...), nil},
		"one byte that is zero": {[]byte{0}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			tpm := tpmlab.NewTPM(t)
			tpmlab.DefineNV(t, tpm, ownIndex, tpm2.TPMANV{OwnerWrite: true, AuthRead: true, NoDA: true, NT: tpm2.TPMNTOrdinary}, len(c.content), c.content)
			der, err := ReadNVCertificate(t.Context(), tpm, ownIndex)
			if err == nil || der != nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: %x, %v", name, der, err)
			}
		})
	}
}

// indexMax has the TPM say that an index can hold so many bytes.
func indexMax(tpm *tpmsim.TPM, size int) *tpmlab.Altered {
	return &tpmlab.Altered{TPM: tpm, Code: tpm2.TPMCCGetCapability, Alter: func(b []byte) {
		if len(b) >= 27 && binary.BigEndian.Uint32(b[19:]) == uint32(tpm2.TPMPTNVIndexMax) {
			binary.BigEndian.PutUint32(b[23:], uint32(size))
		}
	}}
}

// What stands in the way of writing a certificate is found before anything is written,
// and what could not be written in one command is left as it is.
func TestNVCertificateWritesNothing(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	der := tpmlab.CertificateOf(t, 10)
	size := (len(der) + nvCertificateUnit - 1) / nvCertificateUnit * nvCertificateUnit
	write := func(over *tpmsim.FaultyTPM, der []byte, password []byte) error {
		return WriteNVCertificate(t.Context(), over, ownIndex, der, NVCertificateOptions{OwnerPassword: hidden(password)})
	}
	remove := func() {
		testkit.NoError(t, tpm.DeleteNV(ownIndex))
	}
	for name, c := range map[string]struct {
		tpm  *tpmsim.FaultyTPM
		want error
	}{
		"the TPM's chunk is not known":     {tpmsim.Faulty(tpm, tpmsim.FailAt(2, nil)), tpmsim.ErrInjected},
		"the TPM's limit is not known":     {tpmsim.Faulty(tpm, tpmsim.FailAt(3, nil)), tpmsim.ErrInjected},
		"an index takes a byte too few":    {tpmsim.Faulty(indexMax(tpm, size-1), nil), nil},
		"the index takes it":               {tpmsim.Faulty(indexMax(tpm, size), nil), nil},
		"the index takes more":             {tpmsim.Faulty(indexMax(tpm, size+1), nil), nil},
		"the index takes what is not said": {tpmsim.Faulty(indexMax(tpm, 0), nil), nil},
		"a password that no TPM takes":     {tpmsim.Faulty(tpm, nil), tpmop.ErrNullInPassword},
		"the index cannot be made":         {tpmsim.Faulty(tpm, tpmsim.FailEvery(tpm2.TPMCCNVDefineSpace, tpm2.TPMRCFailure)), tpm2.TPMRCFailure},
		"the index cannot be written to":   {tpmsim.Faulty(tpm, tpmsim.FailEvery(tpm2.TPMCCNVWrite, tpm2.TPMRCFailure)), tpm2.TPMRCFailure},
	} {
		t.Run(name, func(t *testing.T) {
			var password []byte
			if errors.Is(c.want, tpmop.ErrNullInPassword) {
				password = badPassword
			}
			err := write(c.tpm, der, password)
			good := strings.HasPrefix(name, "the index takes")
			if good != (err == nil) || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			switch made := tpmlab.Count(c.tpm, tpm2.TPMCCNVDefineSpace); {
			case good || strings.HasSuffix(name, "written to"):
				if made != 1 || tpmlab.Count(c.tpm, tpm2.TPMCCNVUndefineSpace) != 0 {
					t.Errorf("sent %v", c.tpm.Commands())
				}
				remove()
			case strings.HasSuffix(name, "made"):
			case made != 0:
				t.Errorf("sent %v", c.tpm.Commands())
			}
		})
	}
	t.Run("more than all TPMs take, where the TPM does not say", func(t *testing.T) {
		faulty := tpmsim.Faulty(indexMax(tpm, 0), nil)
		if err := write(faulty, tpmlab.CertificateOf(t, 2048), nil); err == nil || tpmlab.Count(faulty, tpm2.TPMCCNVDefineSpace) != 0 {
			t.Errorf("%v after %v", err, faulty.Commands())
		}
	})
	t.Run("exactly one command", func(t *testing.T) {
		chunk, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (int, error) { return tpmop.NVChunk(ctx, h) })
		testkit.NoError(t, err)
		faulty := tpmsim.Faulty(tpm, tpmsim.FailEvery(tpm2.TPMCCNVWrite, tpm2.TPMRCFailure))
		if err := write(faulty, tpmlab.CertificateOf(t, chunk-nvCertificateUnit/2-len(der)+10), nil); !errors.Is(err, tpm2.TPMRCFailure) ||
			tpmlab.Count(faulty, tpm2.TPMCCNVWrite) != 1 || tpmlab.Count(faulty, tpm2.TPMCCNVUndefineSpace) != 0 {
			t.Errorf("%v after %v", err, faulty.Commands())
		}
		remove()
	})
	testkit.NoError(t, write(tpmsim.Faulty(tpm, nil), der, nil))
	checkNVCertificateIs(t, tpm, der)
	t.Run("in place, with a password that no TPM takes", func(t *testing.T) {
		faulty := tpmsim.Faulty(tpm, nil)
		if err := write(faulty, tpmlab.CertificateOf(t, 11), badPassword); !errors.Is(err, tpmop.ErrNullInPassword) || tpmlab.Count(faulty, tpm2.TPMCCNVWrite) != 0 {
			t.Errorf("%v after %v", err, faulty.Commands())
		}
	})
	t.Run("a larger one, where the old one stays", func(t *testing.T) {
		faulty := tpmsim.Faulty(tpm, tpmsim.FailEvery(tpm2.TPMCCNVUndefineSpace, tpm2.TPMRCFailure))
		if err := write(faulty, tpmlab.CertificateOf(t, 600), nil); !errors.Is(err, tpm2.TPMRCFailure) || tpmlab.Count(faulty, tpm2.TPMCCNVDefineSpace) != 0 {
			t.Errorf("%v after %v", err, faulty.Commands())
		}
	})
	checkNVCertificateIs(t, tpm, der)
	for name, alter := range map[string]func([]byte){
		"an area that ends": func(b []byte) { b[23] = 0xff }, "another index": func(b []byte) { b[15] ^= 1 }, "other attributes": func(b []byte) { b[19] ^= 0x80 },
		"another size": func(b []byte) { b[25] ^= 7 },
	} {
		t.Run(name, func(t *testing.T) {
			faulty := tpmsim.Faulty(&tpmlab.Altered{TPM: tpm, Code: tpm2.TPMCCNVReadPublic, Alter: alter}, nil)
			if err := write(faulty, tpmlab.CertificateOf(t, 12), nil); err == nil || tpmlab.Count(faulty, tpm2.TPMCCNVWrite) != 0 {
				t.Errorf("%v after %v", err, faulty.Commands())
			}
		})
	}
	checkNVCertificateIs(t, tpm, der)
	remove()
	for name, c := range map[string]struct {
		attributes tpm2.TPMANV
		size       int
	}{
		"other attributes, its size": {tpm2.TPMANV{OwnerWrite: true, OwnerRead: true, AuthRead: true, NT: tpm2.TPMNTOrdinary}, nvCertificateUnit},
		"its attributes, a size":     {nvCertificateAttributes(), nvCertificateUnit - 1},
	} {
		t.Run(name, func(t *testing.T) {
			tpmlab.DefineNV(t, tpm, ownIndex, c.attributes, c.size, nil)
			if err := WriteNVCertificate(t.Context(), tpm, ownIndex, der, NVCertificateOptions{}); !errors.Is(err, errNVIndexTaken) {
				t.Errorf("got %v", err)
			}
			testkit.NoError(t, tpm.DeleteNV(ownIndex))
		})
	}
}
