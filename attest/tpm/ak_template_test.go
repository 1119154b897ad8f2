package tpm

import (
	"bytes"
	"context"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

func parseArea(t testing.TB, area *tpm2.TPMTPublic) *statement.Public {
	t.Helper()
	p, err := statement.ParsePublic(tpm2.Marshal(area))
	testkit.NoError(t, err)
	return p
}

func TestAKTemplates(t *testing.T) {
	for _, tt := range []struct {
		name     string
		template func() *tpm2.TPMTPublic
		scheme   string
		nameAlg  tpm2.TPMAlgID
		width    int
	}{
		{"RSASSA", AKTemplateRSA2048SHA256, "RSASSA/SHA256", tpm2.TPMAlgSHA256, 256},
		{"RSAPSS", AKTemplateRSA2048PSS, "RSAPSS/SHA256", tpm2.TPMAlgSHA256, 256},
		{"P-256", AKTemplateECDSAP256, "ECDSA/SHA256", tpm2.TPMAlgSHA256, 32},
		{"P-384", AKTemplateECDSAP384, "ECDSA/SHA384", tpm2.TPMAlgSHA384, 48},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := parseArea(t, tt.template())
			if got, want := p.Attributes.String(), "fixedTPM|fixedParent|sensitiveDataOrigin|userWithAuth|noDA|restricted|sign"; got != want {
				t.Errorf("%s: attributes: got %s, want %s", tt.name, got, want)
			}
			if p.Scheme.String() != tt.scheme || p.NameAlg != tt.nameAlg {
				t.Errorf("%s: got scheme %v, name algorithm %v", tt.name, p.Scheme, p.NameAlg)
			}
			unique := p.Modulus
			if p.Type == tpm2.TPMAlgECC {
				unique = p.X
				if !bytes.Equal(p.Y, make([]byte, tt.width)) {
					t.Errorf("%s: Y: got %x, want zeros", tt.name, p.Y)
				}
			}
			if len(unique) != tt.width || !bytes.HasPrefix(unique, []byte("nodeattest/tpm/v1 attestation ke")) {
				t.Errorf("%s: unique: got %q", tt.name, unique)
			}
			// A caller that changes one does not change the next.
			changed := tt.template()
			changed.NameAlg = tpm2.TPMAlgSHA512
			changed.ObjectAttributes.Restricted = false
			if u, err := changed.Unique.RSA(); err == nil {
				u.Buffer[0] ^= 1
			}
			if !bytes.Equal(tpm2.Marshal(tt.template()), p.Raw) {
				t.Errorf("%s: templates share memory", tt.name)
			}
		})
	}
}

func primaryKey(t testing.TB, tpm transport.TPM, template []byte) *statement.Public {
	t.Helper()
	p, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (*statement.Public, error) {
		k, err := tpmop.CreatePrimary(ctx, h, tpm2.TPMRHEndorsement, nil, template)
		if err != nil {
			return nil, err
		}
		return k.Public, nil
	})
	testkit.NoError(t, err)
	return p
}

// The same key each time, and not the one that a template without our unique
// field gives.
func TestAKTemplatesHaveTheirOwnKeys(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	for _, ak := range testAKs {
		template := tpm2.Marshal(ak.template())
		first, second := primaryKey(t, tpm, template), primaryKey(t, tpm, template)
		if !bytes.Equal(first.Raw, second.Raw) {
			t.Errorf("%s: another key the second time", ak.name)
		}
		others, err := fillUnique(parseArea(t, ak.template()), nil)
		testkit.NoError(t, err)
		key, err := primaryKey(t, tpm, others).Key()
		testkit.NoError(t, err)
		if first.SameKey(key) {
			t.Errorf("%s: same key as with a unique field of zeros", ak.name)
		}
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

func TestFillUnique(t *testing.T) {
	nonce := []byte("a nonce of 22 bytes ..")
	for _, ak := range testAKs {
		template := parseArea(t, ak.template())
		before := bytes.Clone(template.Raw)
		filled, err := fillUnique(template, nonce)
		testkit.NoError(t, err)
		if !bytes.Equal(template.Raw, before) {
			t.Errorf("%s: the template itself was changed", ak.name)
		}
		got, err := statement.ParsePublic(filled)
		testkit.NoError(t, err)
		width, unique := 256, got.Modulus
		if got.Type == tpm2.TPMAlgECC {
			width, unique = len(got.Y), got.X
		}
		if !bytes.Equal(unique, tpmop.Padded(nonce, width)) || !bytes.Equal(got.Y, template.Y) {
			t.Errorf("%s: got unique %x, Y %x", ak.name, unique, got.Y)
		}
		if !bytes.Equal(got.BeforeUnique(), template.BeforeUnique()) {
			t.Errorf("%s: more than the unique field was changed", ak.name)
		}
		if _, err := fillUnique(template, make([]byte, width)); err != nil {
			t.Errorf("%s: nonce of %d bytes: %v", ak.name, width, err)
		}
		if _, err := fillUnique(template, make([]byte, width+1)); err == nil {
			t.Errorf("%s: nonce of %d bytes accepted", ak.name, width+1)
		}
	}
}

func TestFillUniqueOfAnEmptyOne(t *testing.T) {
	template := parseArea(t, tpmop.ECCKeyArea(tpm2.TPMSECCParms{CurveID: tpm2.TPMECCNistP256}, akAttributes, nil, nil))
	filled, err := fillUnique(template, []byte{1})
	testkit.NoError(t, err)
	got, err := statement.ParsePublic(filled)
	if err != nil || !bytes.Equal(got.X, tpmop.Padded([]byte{1}, 32)) || len(got.Y) != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func FuzzFillUnique(f *testing.F) {
	for _, ak := range testAKs {
		f.Add(tpm2.Marshal(ak.template()), []byte("nonce"))
	}
	f.Fuzz(func(t *testing.T, template, nonce []byte) {
		p, err := statement.ParsePublic(template)
		if err != nil {
			return
		}
		filled, err := fillUnique(p, nonce)
		if err != nil {
			return
		}
		again, err := statement.ParsePublic(filled)
		if err != nil {
			t.Fatalf("filling %x makes %x, which is no public area: %v", template, filled, err)
		}
		if !bytes.Equal(again.BeforeUnique(), p.BeforeUnique()) {
			t.Fatalf("filling %x changes more than the unique field: %x", template, filled)
		}
	})
}
