package forge

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"slices"
	"time"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"
	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
)

// naiveEK is the EK of an answer: the key for which the challenge was given, and with a
// certificate the one that is trusted.
type naiveEK struct {
	key crypto.PublicKey
}

// guessRoad says on which road evidence is, whatever its binding says.
func (n *naive) guessRoad(a *naiveAnswer) attest.Road {
	if len(a.proof.EKPublic) > 0 {
		return attest.RoadEK
	}
	for _, m := range n.w.bench.Machines {
		if a.leaf != nil && (sameKey(m.EK.Public, a.leaf.PublicKey) || sameKey(m.Second.Public, a.leaf.PublicKey)) {
			return attest.RoadEK
		}
	}
	for _, k := range n.w.bench.WeakEKs {
		if a.leaf != nil && sameKey(k.Public, a.leaf.PublicKey) {
			return attest.RoadEK
		}
	}
	if a.leaf != nil && a.leaf.PublicKey != nil && a.binding.Road == message.RoadEK && !a.ak.SameKey(a.leaf.PublicKey) {
		return attest.RoadEK
	}
	return attest.RoadAK
}

func sameKey(a, b crypto.PublicKey) bool {
	key, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && key.Equal(b)
}

// readEK reads the one EK.
func (n *naive) readEK(a *naiveAnswer) (err error) {
	a.ek = &naiveEK{}
	if err := n.must("ek-sources", a.leaf == nil || len(a.proof.EKPublic) == 0); err != nil {
		return err
	}
	if a.leaf == nil && len(a.proof.EKPublic) == 0 {
		return naiveRefusal("ek")
	}
	if a.leaf != nil {
		a.ek.key = a.leaf.PublicKey
	}
	if len(a.proof.EKPublic) == 0 {
		return nil
	}
	if err := n.must("ek-list", a.leaf != nil); err != nil {
		return err
	}
	if a.ek.key, err = x509.ParsePKIXPublicKey(a.proof.EKPublic); err != nil {
		return naiveRefusal("ek")
	}
	return nil
}

// machineKey is the digest of the key that the challenge must have been for.
func (a *naiveAnswer) machineKey() (digest [message.HashSize]byte) {
	if a.road == attest.RoadEK {
		digest, _ = csr.SPKIHash(a.ek.key)
		return digest
	}
	digest, _ = csr.SPKIHash(a.leaf.PublicKey)
	return digest
}

// trustedKey is the digest of the key that makes the machine trusted: the certificate's,
// where there is one.
func (a *naiveAnswer) trustedKey() (digest [message.HashSize]byte) {
	if a.leaf == nil {
		return a.machineKey()
	}
	digest, _ = csr.SPKIHash(a.leaf.PublicKey)
	return digest
}

// identity is the machine's.
func (a *naiveAnswer) identity() attest.Identity {
	if a.road == attest.RoadEK {
		return "ek:sha256:of-the-binding"
	}
	for _, s := range []tpmcert.IdentitySource{tpmcert.OtherNameIdentity{}, tpmcert.AKIdentity{}} {
		if found, _ := s.Identify(a.leaf); found != "" {
			return found
		}
	}
	return ""
}

// signer is the key that must have signed.
func (a *naiveAnswer) signer() crypto.PublicKey {
	if a.road == attest.RoadAK {
		return a.leaf.PublicKey
	}
	key, err := a.ak.Key()
	if err != nil {
		return nil
	}
	return key
}

// checkEK looks at the EK itself.
func (n *naive) checkEK(a *naiveAnswer) error {
	if a.road != attest.RoadEK {
		return nil
	}
	directory := a.leaf == nil || slices.ContainsFunc(a.leaf.Extensions, func(e pkix.Extension) bool { return oid.SubjectAltName.Equal(e.Id) })
	constraints := a.leaf == nil || a.leaf.BasicConstraintsValid
	k, ok := a.ek.key.(*rsa.PublicKey)
	if !ok {
		return errors.Join(n.must("directory", directory), n.must("basic-constraints", constraints))
	}
	flawed := true
	for _, p := range [][2]int64{{2, 11}, {6, 13}, {8, 17}, {9, 19}, {3, 37}, {26, 53}, {20, 61}, {35, 71}, {24, 73}, {13, 79}, {6, 97}} {
		r := new(big.Int).Exp(k.N, big.NewInt(p[0]), big.NewInt(p[1]))
		flawed = flawed && r.Cmp(big.NewInt(1)) == 0
	}
	return errors.Join(n.must("directory", directory), n.must("ek-roca", !flawed),
		n.must("ek-size", k.N.BitLen() >= 2048), n.must("ek-exponent", k.E == 65537))
}

// Challenge is the real one's on the road of the AK, so that honest requests are
// complete, and plainly made on that of the EK.
func (n *naive) Challenge(ctx context.Context, r *csr.Request) ([]byte, error) {
	bundle, err := csr.Parse(r.Spec.Request)
	if err != nil {
		return nil, err
	}
	evidence, err := message.ParseBundle(bundle.Data)
	if err != nil {
		return nil, err
	}
	hello, err := message.ParseHello(evidence.Statements[0].Stmt)
	if err != nil {
		return nil, err
	}
	if hello.Road == message.RoadEK {
		return n.challengeEK(r, bundle, hello, evidence.Certificates)
	}
	v, err := attest.NewVerifier(n.w.config)
	if err != nil {
		return nil, err
	}
	return v.Challenge(ctx, r)
}

// challengeEK makes a credential. It looks at nothing else: Verify will.
func (n *naive) challengeEK(r *csr.Request, bundle *csr.Bundle, hello *message.Hello, certificates [][]byte) ([]byte, error) {
	ak, err := statement.ParsePublic(hello.AKPublic)
	if err != nil || len(certificates) == 0 {
		return nil, naiveRefusal("hello")
	}
	leaf, err := x509.ParseCertificate(certificates[0])
	if err != nil {
		return nil, err
	}
	key, name := leaf.PublicKey.(*ecdsa.PublicKey), ak.Name()
	digest, err := csr.SPKIHash(key)
	if err != nil {
		return nil, err
	}
	if len(hello.EKPublic) > 0 {
		if err := n.must("credential-ek", false); err != nil {
			return nil, err
		}
		beside, err := x509.ParsePKIXPublicKey(hello.EKPublic)
		if err != nil {
			return nil, err
		}
		key = beside.(*ecdsa.PublicKey)
		if digest, err = csr.SPKIHash(key); err != nil {
			return nil, err
		}
	}
	if n.forget["credential-name"] { // that of the AK that it saw last time
		name = n.w.bench.Machines[n.w.ekOwner[digest]].AK.Public.Name()
	}
	if n.forget["credential-machine"] { // that of whose AK it is
		for _, m := range n.w.bench.Machines {
			if bytes.Equal(m.AK.Public.Raw, hello.AKPublic) {
				key = m.EK.Public.(*ecdsa.PublicKey)
			}
		}
	}
	pkcs10, err := csr.ParsePKCS10(bundle.Request)
	if err != nil {
		return nil, err
	}
	hash := pkcs10.InfoHash
	now := n.w.Now()
	b := &message.Binding{Road: message.RoadEK, KeyID: n.w.bench.Ring.ID, IssuedAt: now.Add(-time.Minute).Unix(), NotAfter: now.Add(time.Minute).Unix(),
		ClusterID: attesttest.ClusterID, SignerName: hello.TargetSigner, Requester: r.User.Username, MachineKey: digest, AKName: ak.Name(), RequestHash: hash}
	der, err := b.Marshal()
	if err != nil {
		return nil, err
	}
	c := &message.Challenge{Binding: *b}
	if c.Credential, err = naiveCredential(key, name, Secret(secretOf(&n.w.bench.Ring), der)); err != nil {
		return nil, err
	}
	return c.Marshal()
}

func naiveCredential(ek *ecdsa.PublicKey, name, secret []byte) (*message.Credential, error) {
	if ek.Curve != elliptic.P256() {
		return nil, naiveRefusal("ek")
	}
	point, err := ek.Bytes()
	if err != nil {
		return nil, err
	}
	area := &tpm2.TPMTPublic{Type: tpm2.TPMAlgECC, NameAlg: tpm2.TPMAlgSHA256,
		Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{CurveID: tpm2.TPMECCNistP256, Symmetric: tpm2.TPMTSymDefObject{
			Algorithm: tpm2.TPMAlgAES, KeyBits: tpm2.NewTPMUSymKeyBits(tpm2.TPMAlgAES, tpm2.TPMKeyBits(128)),
			Mode: tpm2.NewTPMUSymMode(tpm2.TPMAlgAES, tpm2.TPMAlgCFB)}}),
		Unique: tpm2.NewTPMUPublicID(tpm2.TPMAlgECC, &tpm2.TPMSECCPoint{X: tpm2.TPM2BECCParameter{Buffer: point[1:33]}, Y: tpm2.TPM2BECCParameter{Buffer: point[33:]}})}
	key, err := tpm2.ImportEncapsulationKey(area)
	if err != nil {
		return nil, err
	}
	c := &message.Credential{}
	c.IDObject, c.EncryptedSecret, err = tpm2.CreateCredential(rand.Reader, key, name, secret)
	return c, err
}

// naiveQuote is a quote as it stands in the evidence.
type naiveQuote struct {
	raw, sig []byte
	pcrs     []statement.PCR
	attest   *statement.Attestation
}

// checkQuote looks at the quote, where one is asked for.
func (n *naive) checkQuote(a *naiveAnswer) error {
	if !n.w.options.quoted {
		return nil
	}
	if a.quote == nil {
		return n.must("quote-missing", false)
	}
	q, err := n.readQuote(a.quote.Stmt)
	if err != nil || q == nil {
		return err
	}
	b := a.proof.Binding
	return errors.Join(
		n.must("quote-qualifying-data", bytes.Equal(q.attest.ExtraData, QuotedData(Secret(secretOf(&n.w.bench.Ring), b), b))),
		n.must("quote-boot", q.attest.ResetCount == a.attest.ResetCount && q.attest.RestartCount == a.attest.RestartCount),
		n.must("quote-ak", bytes.Equal(q.attest.QualifiedSigner, a.attest.QualifiedSigner)),
		n.checkQuoteSignature(a, q),
		n.checkQuotedValues(q))
}

func (n *naive) readQuote(der []byte) (*naiveQuote, error) {
	var body, raw, sig, list cryptobyte.String
	in := cryptobyte.String(der)
	if !in.ReadASN1(&body, cbasn1.SEQUENCE) || !body.ReadASN1(&raw, cbasn1.OCTET_STRING) || !body.ReadASN1(&sig, cbasn1.OCTET_STRING) || !body.ReadASN1(&list, cbasn1.SEQUENCE) {
		return nil, naiveRefusal("quote")
	}
	q := &naiveQuote{raw: raw, sig: sig}
	canonical := body.Empty() && in.Empty()
	for !list.Empty() {
		var one, value cryptobyte.String
		var bank, index int
		if !list.ReadASN1(&one, cbasn1.SEQUENCE) || !one.ReadASN1Integer(&bank) || !one.ReadASN1Integer(&index) || !one.ReadASN1(&value, cbasn1.OCTET_STRING) {
			return nil, naiveRefusal("quote")
		}
		if k := len(q.pcrs); k > 0 {
			canonical = canonical && q.pcrs[k-1].Index <= index
		}
		q.pcrs = append(q.pcrs, statement.PCR{Bank: tpm2.TPMAlgID(bank), Index: index, Value: value})
	}
	if err := n.must("quote-canonical", canonical); err != nil {
		return nil, err
	}
	read := bytes.Clone(raw)
	if err := n.must("quote-magic", bytes.HasPrefix(read, []byte{0xff, 'T', 'C', 'G'})); err != nil {
		return nil, err
	}
	copy(read, []byte{0xff, 'T', 'C', 'G'})
	var err error
	if q.attest, err = statement.ParseAttestation(read); err != nil {
		return nil, naiveRefusal("quote")
	}
	if q.attest.Quote == nil {
		return nil, n.must("quote-type", false)
	}
	return q, nil
}

func (n *naive) checkQuoteSignature(a *naiveAnswer, q *naiveQuote) error {
	s, err := statement.ParseSignature(q.sig)
	if err != nil {
		return n.must("quote-signature", false)
	}
	der, err := asn1.Marshal(struct{ R, S *big.Int }{new(big.Int).SetBytes(s.R), new(big.Int).SetBytes(s.S)})
	key, ok := a.signer().(*ecdsa.PublicKey)
	sum := sha256.Sum256(q.raw)
	sha1 := s.Hash == tpm2.TPMAlgSHA1
	return errors.Join(n.must("quote-sha1", !sha1),
		n.must("quote-signature", err == nil && ok && (ecdsa.VerifyASN1(key, sum[:], der) || sha1)))
}

// checkQuotedValues checks the digest over the values of the selection, and the policy's PCRs.
func (n *naive) checkQuotedValues(q *naiveQuote) error {
	selected := map[int]bool{}
	bank := true
	for _, s := range q.attest.Quote.Selections {
		bank = bank && s.Hash == tpm2.TPMAlgSHA256 && len(s.PCRs()) > 0
		for _, i := range s.PCRs() {
			selected[i] = true
		}
	}
	first, last := map[int][]byte{}, map[int][]byte{}
	h := sha256.New()
	exact := true
	for _, p := range q.pcrs {
		if first[p.Index] == nil {
			first[p.Index] = p.Value
		}
		last[p.Index] = p.Value
		exact = exact && selected[p.Index]
		bank = bank && p.Bank == tpm2.TPMAlgSHA256
	}
	digested, decided := last, last
	if n.forget["quote-twice-first"] {
		decided = first
	}
	if n.forget["quote-twice-last"] {
		digested = first
	}
	complete := true
	for i := range 8 {
		if selected[i] {
			complete = complete && digested[i] != nil
			h.Write(digested[i])
		}
	}
	good, needed := true, true
	for i := range 8 {
		good = good && (decided[i] == nil || bytes.Equal(decided[i], n.w.bench.QuoteBy(n.w.bench.AKP256).PCRs[i].Value))
		needed = needed && (decided[i] != nil || selected[i])
	}
	twice := len(last) != len(q.pcrs)
	return errors.Join(
		n.must("quote-twice-first", n.forget["quote-twice-last"] || !twice),
		n.must("quote-twice-last", n.forget["quote-twice-first"] || !twice),
		n.must("quote-bank", bank),
		n.must("quote-selection", exact),
		n.must("quote-complete", complete),
		n.must("quote-digest", bytes.Equal(h.Sum(nil), q.attest.Quote.PCRDigest)),
		n.must("quote-needed", needed),
		n.must("quote-policy", good))
}
