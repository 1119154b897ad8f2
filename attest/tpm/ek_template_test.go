package tpm

import (
	"bytes"
	"context"
	"crypto"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// The policies are computed here as the EK Credential Profile defines them.
func TestEKPolicies(t *testing.T) {
	for _, c := range []struct {
		hash    crypto.Hash
		alg     tpm2.TPMAlgID
		index   uint32
		a, b, c string
	}{
		{crypto.SHA256, tpm2.TPMAlgSHA256, 0x01C07F01, tpmop.EKPolicyA256, tpmop.EKPolicyB256, tpmop.EKPolicyC256},
		{crypto.SHA384, tpm2.TPMAlgSHA384, 0x01C07F02, tpmop.EKPolicyA384, tpmop.EKPolicyB384, tpmop.EKPolicyC384},
	} {
		extend := func(policy []byte, code tpm2.TPMCC, rest ...[]byte) []byte {
			h := c.hash.New()
			h.Write(policy)
			_ = binary.Write(h, binary.BigEndian, code)
			for _, b := range rest {
				h.Write(b)
			}
			return h.Sum(nil)
		}
		digest := func(b []byte) []byte { h := c.hash.New(); h.Write(b); return h.Sum(nil) }
		zero := make([]byte, c.hash.Size())
		a := digest(extend(zero, tpm2.TPMCCPolicySecret, handleName(tpm2.TPMRHEndorsement))) // and an empty policyRef
		area := binary.BigEndian.AppendUint32(nil, c.index)
		area = binary.BigEndian.AppendUint16(area, uint16(c.alg))
		area = binary.BigEndian.AppendUint32(area, 0x220F1008)
		area = append(binary.BigEndian.AppendUint16(area, uint16(len(a))), a...)
		area = binary.BigEndian.AppendUint16(area, uint16(2+len(a)))
		authorizeNV := extend(zero, tpm2.TPMCC(0x192), appendName(nil, c.alg, area))
		or := extend(zero, tpm2.TPMCCPolicyOR, a, authorizeNV)
		for name, v := range map[string]struct {
			got  string
			want []byte
		}{"A": {c.a, a}, "C": {c.c, authorizeNV}, "B": {c.b, or}} {
			if v.got != string(v.want) {
				t.Errorf("%v: policy %s is %x, want %x", c.hash, name, v.got, v.want)
			}
		}
	}
}

// The templates make the EKs that tpmsim certifies, and go-tpm's templates L-1 and L-2
// are the same.
func TestEKTemplates(t *testing.T) {
	tpm := tpmsim.New(t, tpmsim.Options{EKs: []tpmsim.Algorithm{tpmsim.RSA2048, tpmsim.P256, tpmsim.P384}, AKs: []tpmsim.AK{}})
	for a, origin := range map[tpmsim.Algorithm]EKOrigin{tpmsim.RSA2048: EKRSA2048(), tpmsim.P256: EKP256(), tpmsim.P384: EKHigh(3)} {
		if !bytes.Equal(tpm.EKTemplate(a), tpm2.Marshal(origin.Template)) {
			t.Errorf("%v: template\n%x, want\n%x", a, tpm2.Marshal(origin.Template), tpm.EKTemplate(a))
		}
		ek, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (*tpmop.LoadedKey, error) {
			return loadEK(ctx, h, &origin, nil)
		})
		testkit.NoError(t, err)
		if !ek.Public.SameKey(tpm.EKPublic(a)) {
			t.Errorf("%v: another EK than the certified one", a)
		}
	}
	for got, want := range map[*tpm2.TPMTPublic]tpm2.TPMTPublic{EKRSA2048().Template: tpm2.RSAEKTemplate, EKP256().Template: tpm2.ECCEKTemplate} {
		if !bytes.Equal(tpm2.Marshal(got), tpm2.Marshal(want)) {
			t.Errorf("got %x, want %x", tpm2.Marshal(got), tpm2.Marshal(want))
		}
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

// A template and a nonce that the TPM's maker left in NV count.
func TestEKTemplateAndNonceInNV(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	public := func(origin EKOrigin) *statement.Public {
		ek, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (*tpmop.LoadedKey, error) {
			return loadEK(ctx, h, &origin, nil)
		})
		testkit.NoError(t, err)
		return ek.Public
	}
	plain := public(EKP256())
	tpmlab.WriteNV(t, tpm, EKP256().NonceIndex, []byte("nonce of the maker"))
	withNonce := public(EKP256())
	if ofOneKey(withNonce, plain) {
		t.Error("the nonce makes no difference")
	}
	template := EKP256().Template
	template.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgECC, &tpm2.TPMSECCPoint{
		X: tpm2.TPM2BECCParameter{Buffer: tpmop.Padded("nonce of the maker", 32)}, Y: tpm2.TPM2BECCParameter{Buffer: make([]byte, 32)}})
	if !ofOneKey(public(EKOrigin{Template: template}), withNonce) {
		t.Error("the nonce is not where it belongs")
	}
	tpmlab.WriteNV(t, tpm, EKP256().NonceIndex, make([]byte, 33))
	if _, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (*tpmop.LoadedKey, error) {
		origin := EKP256()
		return loadEK(ctx, h, &origin, nil)
	}); err == nil {
		t.Error("a nonce wider than the key")
	}

	tpmlab.WriteNV(t, tpm, EKRSA2048().TemplateIndex, tpm2.Marshal(EKHigh(2).Template))
	if !ofOneKey(public(EKRSA2048()), public(EKHigh(2))) {
		t.Error("the template in NV does not count")
	}
	if !ofOneKey(public(EKOrigin{TemplateIndex: EKRSA2048().TemplateIndex}), public(EKHigh(2))) {
		t.Error("a template in NV alone")
	}
	if _, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (*tpmop.LoadedKey, error) {
		return loadEK(ctx, h, &EKOrigin{TemplateIndex: 0x01c0001f}, nil)
	}); !errors.Is(err, tpmop.ErrNVIndexNotFound) {
		t.Errorf("no template at all: %v", err)
	}
	tpmlab.WriteNV(t, tpm, EKRSA2048().TemplateIndex, []byte("no template"))
	if _, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (*tpmop.LoadedKey, error) {
		origin := EKRSA2048()
		return loadEK(ctx, h, &origin, nil)
	}); err == nil {
		t.Error("a broken template in NV was passed over")
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

// The indexes are as in TCG EK Credential Profile 2.6, 2.2.1.
func TestEKHighIndexes(t *testing.T) {
	for number, want := range map[int]tpm2.TPMHandle{1: 0x01c00012, 2: 0x01c00014, 3: 0x01c00016, 6: 0x01c0001c} {
		if o := EKHigh(number); o.CertificateIndex != want || o.TemplateIndex != want+1 || o.NonceIndex != 0 {
			t.Errorf("H-%d: certificate in 0x%08x, template in 0x%08x, nonce in 0x%08x", number, o.CertificateIndex, o.TemplateIndex, o.NonceIndex)
		}
	}
}

func TestEKOriginsThatAreNone(t *testing.T) {
	for name, origin := range map[string]EKOrigin{
		"nothing":                  {},
		"H-0":                      EKHigh(0),
		"H-4":                      EKHigh(4),
		"H-7":                      EKHigh(7),
		"only a certificate":       {CertificateIndex: 0x01c00002},
		"handle and template":      {Handle: 0x81010001, Template: EKP256().Template},
		"handle and index":         {Handle: 0x81010001, TemplateIndex: 0x01c00004},
		"transient handle":         {Handle: 0x80000001},
		"nonce without a template": {NonceIndex: 0x01c00003},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewProver(tpmsim.Faulty(nil, tpmsim.DropAt(1)), AKSource{Template: AKTemplateECDSAP256()}, ProverOptions{EK: &origin}); err == nil {
				t.Errorf("%s: an attester", name)
			}
		})
	}
}

// A key that no credential is made for, or that could not open one, is an error before
// the control plane is asked.
func TestEKsThatNoVerifierAccepts(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	aes256 := EKP256().Template
	aes256.Parameters = tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{Symmetric: tpmop.EKCipher(256), CurveID: tpm2.TPMECCNistP256})
	sha384 := EKHigh(2).Template
	sha384.NameAlg, sha384.AuthPolicy = tpm2.TPMAlgSHA384, tpm2.TPM2BDigest{}
	for name, template := range map[string]*tpm2.TPMTPublic{
		"AES-256 on P-256": aes256,
		"SHA-384 on P-256": sha384,
		"a signing key":    AKTemplateECDSAP256(),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (*tpmop.LoadedKey, error) {
				return loadEK(ctx, h, &EKOrigin{Template: template}, nil)
			})
			if !errors.Is(err, tpmop.CheckEKType) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	unknown := EKP256().Template
	unknown.AuthPolicy.Buffer = bytes.Repeat([]byte{7}, 32)
	if _, err := activateWith(t, tpm, EKOrigin{Template: unknown}, AKTemplateECDSAP256(), nil, make([]byte, 32), nil); err == nil {
		t.Error("an EK with an unknown policy")
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

func ofOneKey(a, b *statement.Public) bool {
	key, err := b.Key()
	return err == nil && a.SameKey(key)
}
