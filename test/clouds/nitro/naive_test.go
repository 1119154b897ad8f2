// Package nitro compares the verifier of NitroTPM documents with plain readings of them.
package nitro

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha512"
	"crypto/x509"
	"errors"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/veraison/go-cose"
)

// naive verifies documents as plainly as can be, with other libraries' readings of COSE and
// CBOR, and can be told to forget checks: then it has the faults that others had.
type naive struct {
	root   *x509.Certificate
	now    time.Time
	forget []string
}

func newNaive(e *environment, forget ...string) *naive { return &naive{e.root, e.Time, forget} }

func (n *naive) forgets(check string) bool { return slices.Contains(n.forget, check) }

func (n *naive) must(check string, ok bool) error {
	if ok || n.forgets(check) {
		return nil
	}
	return errors.New(check)
}

// naivePayload is the payload as another library reads it.
type naivePayload struct {
	ModuleID    string            `cbor:"module_id"`
	Digest      string            `cbor:"digest"`
	Timestamp   uint64            `cbor:"timestamp"`
	NitroPCRs   map[uint64][]byte `cbor:"nitrotpm_pcrs"`
	EnclavePCRs map[uint64][]byte `cbor:"pcrs"`
	Certificate []byte            `cbor:"certificate"`
	CABundle    [][]byte          `cbor:"cabundle"`
	PublicKey   []byte            `cbor:"public_key"`
	UserData    []byte            `cbor:"user_data"`
	Nonce       []byte            `cbor:"nonce"`
}

// decode uses the library's defaults, or its stricter options.
func (p *naivePayload) decode(payload []byte, strict bool) error {
	if !strict {
		return cbor.Unmarshal(payload, p)
	}
	mode, err := cbor.DecOptions{DupMapKey: cbor.DupMapKeyEnforcedAPF, ExtraReturnErrors: cbor.ExtraDecErrorUnknownField, TagsMd: cbor.TagsForbidden,
		FieldNameMatching: cbor.FieldNameMatchingCaseSensitive, MaxMapPairs: 32, MaxArrayElements: 16, MaxNestedLevels: 4}.DecMode()
	if err != nil {
		return err
	}
	if !plainItem(payload) {
		return errors.New("no plain CBOR")
	}
	return mode.Unmarshal(payload, p)
}

// readCOSE reads the envelope by another library.
func (n *naive) readCOSE(data []byte) (*cose.UntaggedSign1Message, error) {
	if n.forgets("tag") && len(data) > 0 && data[0] == 0xd2 {
		data = data[1:]
	}
	m := &cose.UntaggedSign1Message{}
	return m, errors.Join(m.UnmarshalCBOR(data), n.must("envelope", plainItem(data)))
}

// verify returns nil for a document that it takes.
func (n *naive) verify(data []byte) error {
	if err := n.must("size", len(data) <= 16<<10); err != nil {
		return err
	}
	m, err := n.readCOSE(data)
	if err != nil {
		return err
	}
	p := &naivePayload{}
	if err := p.decode(m.Payload, !n.forgets("strict")); err != nil {
		return err
	}
	leaf, err := x509.ParseCertificate(p.Certificate)
	if err != nil {
		return err
	}
	module := regexp.MustCompile(`^i-[0-9a-f]{17}-tpm[0-9a-f]{16}$`)
	id, _, _ := strings.Cut(p.ModuleID, "-tpm")
	id, _, _ = strings.Cut(id, "-enc")
	region := strings.TrimSuffix(strings.TrimPrefix(leaf.Subject.CommonName, p.ModuleID+"."), ".aws")
	values := p.NitroPCRs
	if n.forgets("kind") && values == nil {
		values = p.EnclavePCRs
	}
	made := time.UnixMilli(int64(p.Timestamp))
	return errors.Join(
		n.must("algorithm", string(m.Headers.RawProtected) == "\x44\xa1\x01\x38\x22" && string(m.Headers.RawUnprotected) == "\xa0" && p.Digest == "SHA384"),
		n.must("kind", p.NitroPCRs != nil && p.EnclavePCRs == nil), n.must("module", module.MatchString(p.ModuleID)),
		n.must("leaf-name", leaf.Subject.CommonName == p.ModuleID+"."+region+".aws" && !strings.Contains(region, ".")),
		n.must("issuer-name", leaf.Issuer.CommonName == id+"."+region+".aws.nitro-enclaves"),
		n.must("limits", len(p.Nonce) <= 1024 && len(p.UserData) <= 1024 && len(p.PublicKey) <= 1024),
		n.must("pcrs", len(values) > 0 && goodValues(values)),
		n.must("usage", leaf.KeyUsage&x509.KeyUsageDigitalSignature != 0 && !leaf.IsCA),
		n.must("time", !made.After(n.now.Add(time.Minute)) && !made.Before(leaf.NotBefore.Add(-time.Second)) && !made.After(leaf.NotAfter.Add(time.Second))),
		n.checkChain(p, leaf), n.checkSignature(m, leaf))
}

func goodValues(values map[uint64][]byte) bool {
	for i, v := range values {
		if i > 31 || len(v) != 48 {
			return false
		}
	}
	return true
}

func (n *naive) checkChain(p *naivePayload, leaf *x509.Certificate) error {
	if n.forgets("chain") || len(p.CABundle) == 0 {
		return n.must("chain", false)
	}
	o := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: n.now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	if n.forgets("validity") {
		o.CurrentTime = leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2)
	}
	if ahead := leaf.NotBefore.Sub(n.now); ahead > 0 && ahead <= time.Minute {
		o.CurrentTime = leaf.NotBefore
	}
	o.Roots.AddCert(n.root)
	for i, der := range p.CABundle {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		if key, ok := c.PublicKey.(*ecdsa.PublicKey); i > 0 && !n.forgets("curve") && (!ok || key.Curve != elliptic.P384()) {
			return errors.New("another kind of key")
		}
		o.Intermediates.AddCert(c)
	}
	if n.forgets("root") { // whatever comes last is taken for it
		last, err := x509.ParseCertificate(p.CABundle[len(p.CABundle)-1])
		if err != nil {
			return err
		}
		o.Roots.AddCert(last)
	}
	if err := n.must("bundle-order", bytes.Equal(p.CABundle[0], n.root.Raw) && inOrder(p, leaf)); err != nil {
		return err
	}
	if n.forgets("ca-constraints") {
		return signedInOrder(p, leaf)
	}
	_, err := leaf.Verify(o)
	return err
}

// inOrder reports whether each certificate names the one before it as its issuer.
func inOrder(p *naivePayload, leaf *x509.Certificate) bool {
	for _, der := range slices.Backward(p.CABundle) {
		c, err := x509.ParseCertificate(der)
		if err != nil || !bytes.Equal(leaf.RawIssuer, c.RawSubject) {
			return false
		}
		leaf = c
	}
	return true
}

// signedInOrder checks signatures alone.
func signedInOrder(p *naivePayload, leaf *x509.Certificate) error {
	for _, der := range slices.Backward(p.CABundle) {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		if err := c.CheckSignature(leaf.SignatureAlgorithm, leaf.RawTBSCertificate, leaf.Signature); err != nil {
			return err
		}
		leaf = c
	}
	return nil
}

func (n *naive) checkSignature(m *cose.UntaggedSign1Message, leaf *x509.Certificate) error {
	if n.forgets("signature") {
		return nil
	}
	key, ok := leaf.PublicKey.(*ecdsa.PublicKey)
	if !ok || !n.forgets("curve") && key.Curve != elliptic.P384() {
		return errors.New("another kind of key")
	}
	if !n.forgets("algorithm") && !n.forgets("curve") {
		verifier, err := cose.NewVerifier(cose.AlgorithmES384, key)
		if err != nil {
			return err
		}
		return m.Verify(nil, verifier)
	}
	var header []byte
	if err := cbor.Unmarshal(m.Headers.RawProtected, &header); err != nil {
		return err
	}
	signed, err := cbor.Marshal([]any{"Signature1", header, []byte{}, m.Payload})
	if err != nil {
		return err
	}
	digest := sha512.Sum384(signed)
	half := len(m.Signature) / 2
	if !ecdsa.Verify(key, digest[:], new(big.Int).SetBytes(m.Signature[:half]), new(big.Int).SetBytes(m.Signature[half:])) {
		return errors.New("signature")
	}
	return nil
}

// plainItem reports whether b is one item as documents have it: heads of the fewest bytes,
// no chunks, and no item without a length but the whole.
func plainItem(b []byte) bool {
	if len(b) > 0 && b[0] == 0xbf {
		for rest := b[1:]; ; {
			if len(rest) == 1 && rest[0] == 0xff {
				return true
			}
			for range 2 {
				next, ok := plainRest(rest)
				if !ok {
					return false
				}
				rest = next
			}
		}
	}
	rest, ok := plainRest(b)
	return ok && len(rest) == 0
}

// plainRest is what follows the first item.
func plainRest(b []byte) (rest []byte, ok bool) {
	if len(b) == 0 {
		return nil, false
	}
	major, info := b[0]>>5, int(b[0]&31)
	if b[0] == 0xf6 {
		return b[1:], true
	}
	n, size := uint64(info), 0
	if info >= 24 {
		if size = 1 << (info - 24); info > 27 || len(b) < 1+size {
			return nil, false
		}
		n = new(big.Int).SetBytes(b[1 : 1+size]).Uint64()
		if info == 24 && n < 24 || info == 25 && n < 256 || info == 26 && n < 1<<16 || info == 27 && n < 1<<32 {
			return nil, false
		}
	}
	b = b[1+size:]
	items := uint64(0)
	switch major {
	case 0:
		return b, true
	case 2, 3:
		if n > uint64(len(b)) {
			return nil, false
		}
		return b[n:], true
	case 4:
		items = n
	case 5:
		items = 2 * n
	default:
		return nil, false
	}
	for ; items > 0; items-- {
		if b, ok = plainRest(b); !ok {
			return nil, false
		}
	}
	return b, true
}
