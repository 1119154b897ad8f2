package node

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/kube/internal/tpmcapability"
	"github.com/nodeattest/nodeattest/refusal"
)

// aks returns the attestation keys, by their names in the file. gce-rsa, gce-ecc, azure-rsa and oem
// have certificates, and need no EK.
func aks() map[string]tpm.AKSource {
	return map[string]tpm.AKSource{
		"p-256":     {Template: tpm.AKTemplateECDSAP256()},
		"p-384":     {Template: tpm.AKTemplateECDSAP384()},
		"rsa-2048":  {Template: tpm.AKTemplateRSA2048SHA256()},
		"gce-rsa":   tpm.GCERSA(),
		"gce-ecc":   tpm.GCEECC(),
		"azure-rsa": tpm.AzureRSA(),
		"oem":       tpm.OEMIAK(),
	}
}

// akSettings is the object form of the field ak: the source of the key and of its certificate.
type akSettings struct {
	Template         string `json:"template"`
	TemplateIndex    string `json:"templateIndex"`
	NonceIndex       string `json:"nonceIndex"`
	Handle           string `json:"handle"`
	CertificateIndex string `json:"certificateIndex"`
	CertificatesFile string `json:"certificatesFile"`
}

// akField returns the path of a field of akSettings in the file.
func akField(name string) string { return "evidence.tpm.ak." + name }

// An attestationKey is the value of the field ak.
type attestationKey struct {
	tpm.AKSource
	name  string      // for messages
	other *akSettings // nil if the field is one of the names of aks
}

// hasCertificate reports whether the key attests by its certificate (RoadAK).
func (k *attestationKey) hasCertificate() bool {
	return k.OEM || k.CertificateIndex != 0 || k.other != nil
}

// takesPassword reports whether the key can have a password.
func (k *attestationKey) takesPassword() bool { return k.OEM || k.other != nil && k.Handle != 0 }

// key reads the field ak: a name, or an object.
func (t *tpmSettings) key() (*attestationKey, error) {
	text := bytes.TrimSpace(t.AK)
	if len(text) != 0 && text[0] == '{' {
		s := new(akSettings)
		if err := t.AK.Decode(s); err != nil {
			return nil, unreadable("an invalid section evidence.tpm.ak", err)
		}
		source, err := s.source()
		return &attestationKey{source, "of an object", s}, err
	}
	var name string
	if json.Unmarshal(text, &name) != nil {
		name = string(text)
	}
	source, ok := aks()[cmp.Or(name, "p-256")]
	if !ok {
		return nil, refusal.Config("evidence.tpm.ak", refusal.Quote(name), "p-256, p-384, rsa-2048, gce-rsa, gce-ecc, azure-rsa or oem, or an object")
	}
	return &attestationKey{source, refusal.Quote(name), nil}, nil
}

// source checks the fields and returns the key's source.
func (s *akSettings) source() (source tpm.AKSource, err error) {
	if err := cmp.Or(
		exactlyOne("the key", [][2]string{{"template", s.Template}, {"templateIndex", s.TemplateIndex}, {"handle", s.Handle}}),
		exactlyOne("the key's certificate", [][2]string{{"certificateIndex", s.CertificateIndex}, {"certificatesFile", s.CertificatesFile}}),
	); err != nil {
		return source, err
	}
	if s.NonceIndex != "" && s.TemplateIndex == "" {
		return source, refusal.Config(akField("nonceIndex"), refusal.Quote(s.NonceIndex), "templateIndex to be set too")
	}
	for _, f := range []struct {
		name, text string
		first      byte
		into       *tpm2.TPMHandle
	}{
		{"templateIndex", s.TemplateIndex, nvIndex, &source.TemplateIndex},
		{"nonceIndex", s.NonceIndex, nvIndex, &source.NonceIndex},
		{"handle", s.Handle, persistentKey, &source.Handle},
		{"certificateIndex", s.CertificateIndex, nvIndex, &source.CertificateIndex},
	} {
		if f.text == "" {
			continue
		}
		if *f.into, err = parseHandle(akField(f.name), f.text, f.first, ""); err != nil {
			return source, err
		}
	}
	if own, ok := aks()[s.Template]; ok && own.Template != nil {
		source.Template = own.Template
	} else if s.Template != "" {
		source.Template, err = readTemplate(s.Template)
	}
	return source, err
}

// exactlyOne refuses fields of which none, or more than one, is set.
func exactlyOne(what string, fields [][2]string) error {
	var all, given []string
	for _, f := range fields {
		all = append(all, f[0])
		if f[1] != "" {
			given = append(given, f[0])
		}
	}
	if len(given) == 1 {
		return nil
	}
	return refusal.Config("evidence.tpm.ak", cmp.Or(strings.Join(given, " and "), "no source")+" of "+what,
		"one of "+strings.Join(all, ", "))
}

// The first byte of handles (TPM 2.0 Library, Part 2, 7.2).
const (
	nvIndex       = 0x01
	persistentKey = 0x81
)

// parseHandle reads a handle whose first byte is first, written as 0x and eight hexadecimal digits.
// otherwise names another value of the field, for errors.
func parseHandle(field, text string, first byte, otherwise string) (tpm2.TPMHandle, error) {
	what := map[byte]string{nvIndex: "an NV index", persistentKey: "a handle"}[first]
	n, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 32)
	if err != nil || byte(n>>24) != first || fmt.Sprintf("0x%08x", n) != text {
		return 0, refusal.Config(field, refusal.Quote(text), fmt.Sprintf(`%s from "0x%02x000000" to "0x%02xffffff"%s`, what, first, first, otherwise))
	}
	return tpm2.TPMHandle(n), nil
}

// akAttributes are the attributes that every verifier requires of an attestation key.
const akAttributes = statement.AttributeFixedTPM | statement.AttributeFixedParent | statement.AttributeSensitiveDataOrigin |
	statement.AttributeRestricted | statement.AttributeSign

// readTemplate reads a TPMT_PUBLIC, and checks that it is the template of an attestation key.
func readTemplate(path string) (*tpm2.TPMTPublic, error) {
	text, err := readFile(path, configfile.MaxSize)
	if err != nil {
		return nil, err
	}
	public, err := statement.ParsePublic(text)
	template, failed := tpm2.Unmarshal[tpm2.TPMTPublic](text)
	if err = cmp.Or(err, failed); err != nil {
		return nil, unreadable(akField("template")+" "+path+", which is not a TPMT_PUBLIC", err)
	}
	if a := public.Attributes; !a.Has(akAttributes) || a.HasAny(statement.AttributeDecrypt) {
		return nil, refusal.Config(akField("template"), "a template with the attributes "+a.String(), "the template of a restricted signing key: "+akAttributes.String()+", without "+statement.AttributeDecrypt.String())
	}
	return template, nil
}

// preparedTPM is a TPM whose endorsement password is set, and whose AK certificate is checked, before
// each use: the certificate may have been renewed, and one of a different key is refused before a
// request is filed.
type preparedTPM struct {
	*authenticator.TPM
	password passwordFile
	ak       *akSettings // nil: the AK's certificate is not checked
	now      func() time.Time

	mu    sync.Mutex
	known []byte // the last certificate that was found to be the key's
}

// Open sets the password, checks the certificate, and opens the TPM.
func (c *preparedTPM) Open(ctx context.Context) (attest.Prover, error) {
	ready, err := c.password.ready(ctx, c.TPM)
	if err != nil {
		return nil, err
	}
	k := *ready
	if c.ak != nil {
		if err := c.checkCertificate(ctx, &k); err != nil {
			return nil, fmt.Errorf("%s: %w", akField(c.ak.certificateField()), err)
		}
	}
	return k.Open(ctx)
}

// certificateField returns the field that says where the key's certificate is.
func (s *akSettings) certificateField() string {
	if s.CertificatesFile != "" {
		return "certificatesFile"
	}
	return "certificateIndex"
}

// checkCertificate reads the certificate, and checks it.
func (c *preparedTPM) checkCertificate(ctx context.Context, k *authenticator.TPM) error {
	device, err := tpm.OpenTPM(k.Path)
	if err != nil {
		return err
	}
	err = tpmcapability.WithRoom(ctx, k.Path, device, func() error {
		leaf, err := c.leaf(ctx, k, device)
		if err != nil {
			return err
		}
		return c.check(ctx, k, device, leaf)
	})
	return errors.Join(err, device.Close())
}

// leaf reads the certificate. From a file, it also puts the whole chain into the options.
func (c *preparedTPM) leaf(ctx context.Context, k *authenticator.TPM, device transport.TPM) (*x509.Certificate, error) {
	if c.ak.CertificatesFile == "" {
		encoded, err := tpmkey.ReadNVCertificate(ctx, device, k.AK.CertificateIndex)
		if err != nil {
			return nil, err
		}
		return x509.ParseCertificate(encoded)
	}
	chain, err := readCertificates(c.ak.CertificatesFile)
	if err != nil {
		return nil, err
	}
	k.Options.Certificates = tpmcert.CertificatesDER(chain)
	return chain[0], nil
}

// check refuses an expired certificate, and one of another key.
func (c *preparedTPM) check(ctx context.Context, k *authenticator.TPM, device transport.TPM, leaf *x509.Certificate) error {
	if now := c.now(); now.After(leaf.NotAfter) {
		return refusal.Config("a certificate", "that expired at "+leaf.NotAfter.UTC().Format(time.RFC3339),
			"a certificate that is valid at "+now.UTC().Format(time.RFC3339)+": have its CA certify the key again")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes.Equal(leaf.Raw, c.known) {
		return nil
	}
	public, err := tpm.AKPublic(ctx, device, k.AK, k.Options.EndorsementPassword)
	if err != nil {
		return err
	}
	if !public.SameKey(leaf.PublicKey) {
		return refusal.Config("a certificate", "of another key", "the certificate of the key of evidence.tpm.ak")
	}
	c.known = leaf.Raw
	return nil
}
