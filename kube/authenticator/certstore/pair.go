package certstore

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// CheckPair is the check that fails for a file that does not contain a certificate and its key in the
// encoding of [Pair.Marshal], or whose key is not the certificate's. Such a file is treated as missing:
// the next write replaces it.
const CheckPair refusal.Check = "pair"

const (
	// maxPairSize bounds the file of a pair, in bytes.
	maxPairSize = 256 << 10
	// maxChain bounds the number of certificates in a pair.
	maxChain = 10
)

const (
	blockCertificate = "CERTIFICATE"
	blockKey         = "PRIVATE KEY" // PKCS #8, RFC 5958
)

// Pair is a certificate with its key. [NewPair], [NewSealedPair] and [Store.ReadPair] check that the
// key is the certificate's. The fields must not be changed afterwards.
type Pair struct {
	// Chain is the certificate and its CAs as the signer returned them, leaf first, in PEM (RFC
	// 7468, section 5).
	Chain []byte
	// Key is the private key in PEM: PKCS #8 (RFC 7468, section 10), or the single block of a
	// sealed key.
	Key []byte
	// Leaf is the first certificate of Chain.
	Leaf *x509.Certificate
	// Sealed says that only the machine that made Key can use it: a TPM key file, for example.
	// [Pair.CheckKey] checks that it is the key of Leaf once it is loaded.
	Sealed bool
	// Received is the time when the certificate arrived, in whole seconds, as signers backdate
	// notBefore. Renew is the time of its renewal, between Received and notAfter.
	Received, Renew time.Time
}

// NewPair makes a pair from the certificates that a signer returned, in PEM, and their private key,
// an ECDSA or RSA key in memory. Text around the PEM blocks is dropped. renew returns the time of
// renewal; it is called once, with the value for Received. A certificate that has expired at now, by
// this machine's clock, is refused. The error matches [CheckPair].
func NewPair(chain []byte, key crypto.Signer, now time.Time, renew func(received time.Time, leaf *x509.Certificate) time.Time) (*Pair, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, &refusal.Error{Check: CheckPair, Got: "a private key that cannot be written", Err: err}
	}
	return newPair(chain, pem.EncodeToMemory(&pem.Block{Type: blockKey, Bytes: der}), now, renew)
}

// NewSealedPair is [NewPair] for a key that cannot leave the machine: file is the single PEM block that
// restores the key, and public is its public key.
func NewSealedPair(chain, file []byte, public crypto.PublicKey, now time.Time, renew func(received time.Time, leaf *x509.Certificate) time.Time) (*Pair, error) {
	p, err := newPair(chain, file, now, renew)
	if err != nil {
		return nil, err
	}
	if !p.Sealed {
		return nil, CheckPair.Refuse("a key file with an unencrypted private key", "the file of a sealed key")
	}
	return p, p.CheckKey(public)
}

func newPair(chain, key []byte, now time.Time, renew func(received time.Time, leaf *x509.Certificate) time.Time) (*Pair, error) {
	p := &Pair{Received: now.UTC().Truncate(time.Second)}
	if err := p.parseBlocks(slices.Concat(chain, []byte("\n"), key)); err != nil {
		return nil, err
	}
	if !p.Received.Before(p.Leaf.NotAfter) {
		return nil, CheckPair.Refuse("a certificate that expired at "+p.Leaf.NotAfter.UTC().Format(timeForm), "a certificate that is valid at "+p.Received.Format(timeForm)+", by this machine's clock")
	}
	p.Renew = renew(p.Received, p.Leaf).UTC().Truncate(time.Second)
	return parsePair(p.Marshal())
}

// CheckKey refuses a public key that is not the certificate's. It is called for a sealed key once that
// is loaded. The error matches [CheckPair].
func (p *Pair) CheckKey(public crypto.PublicKey) error {
	if p == nil || p.Leaf == nil {
		return CheckPair.Refuse("no certificate", "one")
	}
	key, ok := p.Leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !key.Equal(public) {
		return CheckPair.Refuse("a key that is not the certificate's", "the certificate's")
	}
	return nil
}

// Usable reports whether the certificate is still valid two seconds after now. It does not check
// notBefore: the API server's clock decides about that.
func (p *Pair) Usable(now time.Time) bool {
	return p != nil && p.Leaf != nil && now.Add(2*time.Second).Before(p.Leaf.NotAfter)
}

const timeForm = "2006-01-02T15:04:05Z" // RFC 3339, UTC

// Marshal writes the pair as one file: a line with the two times, the certificates, the key.
// Programs that read PEM, including the kubelet and OpenSSL, skip the first line and find the
// certificates and the key in the same file.
func (p *Pair) Marshal() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# received %s, renew %s\n", p.Received.UTC().Format(timeForm), p.Renew.UTC().Format(timeForm))
	b.Write(p.Chain)
	b.Write(p.Key)
	return b.Bytes()
}

// parsePair parses the encoding of [Pair.Marshal]: 1 to 10 certificates, then the key of the first
// certificate, in at most maxPairSize bytes. The error matches [CheckPair].
func parsePair(text []byte) (*Pair, error) {
	if len(text) > maxPairSize {
		return nil, CheckPair.Refuse(fmt.Sprintf("%d bytes", len(text)), fmt.Sprintf("at most %d", maxPairSize))
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	times := bytes.Fields(line)
	p := new(Pair)
	var err error
	if len(times) != 5 {
		return nil, CheckPair.Refuse("a different first line", "# received TIME, renew TIME")
	}
	p.Received, err = time.Parse(timeForm, string(bytes.TrimSuffix(times[2], []byte(","))))
	if err == nil {
		p.Renew, err = time.Parse(timeForm, string(times[4]))
	}
	if err != nil {
		return nil, &refusal.Error{Check: CheckPair, Got: "a first line without times", Err: err}
	}
	if err := p.parseBlocks(text[len(line):]); err != nil {
		return nil, err
	}
	if !bytes.Equal(p.Marshal(), text) {
		return nil, CheckPair.Refuse("a file in a different encoding", "the encoding that Pair.Marshal writes")
	}
	if p.Renew.Before(p.Received) || p.Renew.After(p.Leaf.NotAfter) {
		return nil, CheckPair.Refuse("renewal at "+p.Renew.Format(timeForm), "a time between "+p.Received.Format(timeForm)+" and "+p.Leaf.NotAfter.UTC().Format(timeForm))
	}
	return p, nil
}

// parseBlocks reads the certificates and the key.
func (p *Pair) parseBlocks(text []byte) error {
	certificates := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		switch {
		case len(block.Headers) != 0:
			return CheckPair.Refuse("a PEM block with headers", "a block without headers")
		case p.Key != nil:
			return CheckPair.Refuse("a block "+refusal.Quote(block.Type)+" after the key", "the certificates, then their key")
		case block.Type == blockCertificate:
			if certificates++; certificates > maxChain {
				return CheckPair.Refuse("too many certificates", fmt.Sprintf("at most %d", maxChain))
			}
			certificate, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return &refusal.Error{Check: CheckPair, Got: "a certificate that cannot be read", Err: err}
			}
			if p.Leaf == nil {
				p.Leaf = certificate
			}
			p.Chain = append(p.Chain, pem.EncodeToMemory(block)...)
		default:
			p.Key, p.Sealed = pem.EncodeToMemory(block), block.Type != blockKey
		}
	}
	switch {
	case p.Leaf == nil:
		return CheckPair.Refuse("no certificate", "at least one")
	case p.Key == nil:
		return CheckPair.Refuse("no key", "the certificate's")
	case p.Sealed:
		return nil
	}
	if _, err := tls.X509KeyPair(p.Chain, p.Key); err != nil {
		return &refusal.Error{Check: CheckPair, Got: "a key that is not the certificate's", Err: err}
	}
	return nil
}
