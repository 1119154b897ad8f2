package tpm

import (
	"crypto"
	"crypto/ecdsa"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

// Coordinates and scalars that begin with zero bytes are loaded at full width.
func TestSoftwareKeyWithLeadingZeros(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	keys := map[string]*ecdsa.PrivateKey{}
	for len(keys) < 2 {
		k := tpmlab.NewECDSA(t, p256)
		point, err := k.PublicKey.Bytes()
		testkit.NoError(t, err)
		if point[1] == 0 {
			keys["X"] = k
		}
		if point[33] == 0 {
			keys["Y"] = k
		}
	}
	small, err := ecdsa.ParseRawPrivateKey(p256, tpmop.Padded(make([]byte, 31), 32)[:31:31])
	if err == nil {
		t.Fatalf("a short scalar made the key %v", small.PublicKey)
	}
	scalar := make([]byte, 32)
	scalar[31] = 5
	if keys["scalar"], err = ecdsa.ParseRawPrivateKey(p256, scalar); err != nil {
		t.Fatal(err)
	}
	for name, k := range keys {
		key := mustSoftwareKey(t, k)
		c, err := certifyWith(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, key, []byte{1})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		checkStatement(t, c, k.Public(), []byte{1}, false)
		if p, err := statement.ParsePublic(c.Public); err != nil || len(p.X) != 32 || len(p.Y) != 32 {
			t.Errorf("%s: public area %x, %v", name, c.Public, err)
		}
	}
}

func TestSoftwareKeyAttributes(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	for _, key := range []tpmkey.Certifiable{mustSoftwareKey(t, tpmlab.NewECDSA(t, p256)), mustSoftwareKey(t, tpmlab.RSA2048())} {
		c, err := certifyWith(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, key, []byte{1})
		testkit.NoError(t, err)
		p, err := statement.ParsePublic(c.Public)
		testkit.NoError(t, err)
		if got, want := p.Attributes.String(), "userWithAuth|noDA|sign"; got != want {
			t.Errorf("attributes: got %s, want %s", got, want)
		}
		if p.Exponent != 0 || p.Scheme.String() != "NULL" {
			t.Errorf("got exponent %d and scheme %v, want 0 and NULL", p.Exponent, p.Scheme)
		}
	}
}

// The simulator has no such key. The TPM's refusal comes through, and the key
// works elsewhere.
func TestSoftwareKeyThatTheTPMDoesNotHave(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	for _, priv := range []crypto.Signer{tpmlab.RSA3072()} {
		_, err := certifyWith(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, mustSoftwareKey(t, priv), []byte{1})
		if err == nil || !strings.Contains(err.Error(), "TPM2_LoadExternal") {
			t.Errorf("got %v, want a refusal of TPM2_LoadExternal", err)
		}
		tpmlab.CheckNothingLoaded(t, tpm)
	}
}
