package tpm

import (
	"bytes"
	"context"

	"errors"

	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/internal/testkit/softak"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"

	"github.com/nodeattest/nodeattest/tpmsim"
)

func TestAreasOfEndorsementKeys(t *testing.T) {
	area := func(change func(*statement.Public)) *statement.Public {
		p := *softak.PublicArea(tpmlab.P256().Public(), statement.AttributeFixedTPM|statement.AttributeFixedParent|statement.AttributeRestricted|statement.AttributeDecrypt, softak.NoScheme)
		p.Symmetric = statement.SymmetricScheme{Alg: tpm2.TPMAlgAES, KeyBits: 128, Mode: tpm2.TPMAlgCFB}
		change(&p)
		return &p
	}
	p521 := softak.PublicArea(tpmlab.P521().Public(), softak.AKAttributes, softak.NoScheme)
	for name, c := range map[string]struct {
		ek   *statement.Public
		want refusal.Check
	}{
		"good":                  {area(func(*statement.Public) {}), ""},
		"a point off its curve": {area(func(p *statement.Public) { p.X = filled(32, 1) }), statement.CheckPoint},
		"P-521":                 {p521, tpmop.CheckEKType},
		"another hash":          {area(func(p *statement.Public) { p.NameAlg = tpm2.TPMAlgSHA384 }), tpmop.CheckEKType},
		"no cipher":             {area(func(p *statement.Public) { p.Symmetric.Alg = tpm2.TPMAlgNull }), tpmop.CheckEKType},
		"another key size":      {area(func(p *statement.Public) { p.Symmetric.KeyBits = 256 }), tpmop.CheckEKType},
		"another mode":          {area(func(p *statement.Public) { p.Symmetric.Mode = tpm2.TPMAlgCTR }), tpmop.CheckEKType},
		"not restricted":        {area(func(p *statement.Public) { p.Attributes &^= statement.AttributeRestricted }), tpmop.CheckEKType},
		"not for decryption":    {area(func(p *statement.Public) { p.Attributes &^= statement.AttributeDecrypt }), tpmop.CheckEKType},
	} {
		t.Run(name, func(t *testing.T) { tpmlab.ExpectCheck(t, checkEKPublic(c.ek), c.want) })
	}
}

// A template and a nonce in NV, each bad by itself: the error names the index of the one
// that is bad.
func TestTemplatesAndNonces(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	const template, nonce, garbage, long = 0x01c00a01, 0x01c00a02, 0x01c00a03, 0x01c00a04
	tpmlab.WriteNV(t, tpm, template, tpm2.Marshal(AKTemplateECDSAP256()))
	tpmlab.WriteNV(t, tpm, nonce, []byte("nonce"))
	tpmlab.WriteNV(t, tpm, garbage, []byte("garbage"))
	tpmlab.WriteNV(t, tpm, long, make([]byte, 33))
	for name, c := range map[string]struct {
		template, nonce tpm2.TPMHandle
		word            string
	}{
		"good": {template, nonce, ""}, "no template": {garbage, nonce, "template"}, "a long nonce": {template, long, "nonce in NV index 0x01c00a04"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (*tpmop.LoadedKey, error) {
				return loadAK(ctx, h, &AKSource{TemplateIndex: c.template, NonceIndex: c.nonce}, nil, nil)
			})
			_, err2 := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (*tpmop.LoadedKey, error) {
				return (&AKSource{TemplateIndex: c.template, NonceIndex: c.nonce}).load(ctx, h, nil, true)
			})
			for _, err := range []error{err, err2} {
				if (c.word == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.word) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

// What stands in NV above an EK certificate has at most 64 KiB, padding included.
func TestSizesOfChainsInNV(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	lower := tpmlab.Sign(t, root, "lower", nil)
	leaf := tpmlab.EKCertificate(t, lower, tpmlab.NewP256(t).Public(), nil)
	padTo := func(der []byte, size int) []byte {
		return append(bytes.Clone(der), bytes.Repeat([]byte{0xff}, size-len(der))...)
	}
	for more, want := range map[int]refusal.Check{-1: "", 0: "", 1: refusal.Check("message-size"), 2: refusal.Check("message-size")} {
		tpm := fakeNV{0x01c00100: padTo(lower.Cert.Raw, 32<<10), 0x01c00101: padTo(root.Cert.Raw, 32<<10+more)}
		above, err := readChainAbove(t, tpm, leaf.Raw)
		tpmlab.ExpectCheck(t, err, want)
		if want == "" && (len(above) != 1 || !bytes.Equal(above[0], lower.Cert.Raw)) {
			t.Errorf("%+d: %d certificates", more, len(above))
		}
	}
	over := padTo(root.Cert.Raw, 40<<10)
	three := tpmsim.Faulty(fakeNV{0x01c00100: over, 0x01c00101: over, 0x01c00102: over}, nil)
	if _, err := readChainAbove(t, three, leaf.Raw); !errors.Is(err, refusal.Check("message-size")) || tpmlab.Count(three, tpm2.TPMCCNVReadPublic) != 2 {
		t.Errorf("three of 40 KiB: %v after %d", err, tpmlab.Count(three, tpm2.TPMCCNVReadPublic))
	}
}
