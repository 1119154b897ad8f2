package azure

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/internal/chain"
	"github.com/nodeattest/nodeattest/refusal"
)

const domainPublic = "metadata.azure.com"

// Checks on a document's signer and time.
const (
	// checkName: the signer's certificate has no name within the clouds that count.
	checkName refusal.Check = "azure-certificate-name"
	// checkCertificate: the signer's certificate is not for a TLS server with an RSA key of
	// 2048 to 4096 bits.
	checkCertificate refusal.Check = "azure-certificate"
	// checkSignature: the signature is not that of the signer's key over the content.
	checkSignature refusal.Check = "azure-document-signature"
	// checkTime: the document is from the future, or has expired.
	checkTime refusal.Check = "azure-document-time"
)

// maxSkew is how far the service's clock may be ahead.
const maxSkew = time.Minute

// VerifierConfig configures a [Verifier]. Roots are required.
type VerifierConfig struct {
	// Roots are trusted to issue certificates for the names in Domains. They are web roots, so
	// any of their CAs could do so: supply the roots that Microsoft names for the service,
	// DigiCert Global Root G2 and the roots of Microsoft, and not a system's pool.
	Roots []*x509.Certificate
	// Intermediates are the CAs between the signers and the Roots; the signers do not send
	// them. There are about twenty, and new ones every year or two.
	Intermediates []*x509.Certificate
	// FetchIssuer gets a missing intermediate from the place that a certificate names for it
	// (authority information access, caIssuers: RFC 5280, 4.2.2.1): the body there, at most
	// 16 KiB, or nil if it does not fetch from that URL. That is a certificate in DER, a
	// certs-only PKCS#7 message with up to 16 of them, or either in PEM. An error means that
	// nothing could be found out now, and so does a body without a certificate. It is called for at most four documents at once, and for each at
	// most four times, within ten seconds in all; what verified is kept for a day. Nil gets none;
	// [HTTPFetcher.FetchIssuer] gets them.
	//
	// The URL comes from a certificate that is not verified yet: anyone who files a request
	// chooses it. A function asks only hosts that it was configured with, does not follow
	// redirects to others, and sets its own time limits. Its result is not trusted: it
	// must chain to a root like anything else.
	FetchIssuer func(ctx context.Context, url string) ([]byte, error)
	// Domains are the names of the clouds whose documents count, from Microsoft's
	// documentation of the service: metadata.azure.com, metadata.azure.us (US government),
	// metadata.azure.cn (China). Each covers itself and all names below it, and one that is not
	// called metadata, or is not below such a name, is refused. Nil means the first. The certificates of the first two come from the same CAs: only the name tells
	// them apart.
	Domains []string
}

// Verifier verifies attested documents. It is safe for concurrent use.
type Verifier struct {
	roots, intermediates chain.Pool
	fetchIssuer          func(ctx context.Context, url string) ([]byte, error)
	fetched              fetched
	domains              []string
}

// NewVerifier makes a verifier. The error matches [refusal.CheckConfig] and names the
// field.
func NewVerifier(config VerifierConfig) (*Verifier, error) {
	if len(config.Roots) == 0 {
		return nil, refusal.Config("Roots", "", "at least one")
	}
	if !chain.AllCAs(config.Roots) || !chain.AllCAs(config.Intermediates) {
		return nil, refusal.Config("Roots or Intermediates", "with nil or a certificate of no CA", "CAs")
	}
	if config.Domains == nil {
		config.Domains = []string{domainPublic}
	}
	v := &Verifier{roots: chain.NewPool(config.Roots), intermediates: chain.NewPool(config.Intermediates), fetchIssuer: config.FetchIssuer,
		fetched: fetched{busy: make(chan struct{}, maxFetching)}}
	for _, d := range config.Domains {
		if !validDomain(d) {
			return nil, refusal.Config("Domains", refusal.Quote(d), "names such as "+domainPublic)
		}
		v.domains = append(v.domains, strings.ToLower(d))
	}
	if len(v.domains) == 0 {
		return nil, refusal.Config("Domains", "", "at least one, or nil")
	}
	return v, nil
}

// validDomain reports whether a name is metadata.<cloud>, or one below that, with two or more
// labels for the cloud, of letters, digits and hyphens. Names of other services are customers',
// who get certificates for them: under azure.com, for example.
func validDomain(d string) bool {
	labels := strings.Split(strings.ToLower(d), ".")
	first := slices.Index(labels, "metadata")
	return first >= 0 && len(labels)-first > 2 && len(d) <= 253 && !slices.ContainsFunc(labels, func(l string) bool {
		return l == "" || len(l) > 63 || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-") != ""
	})
}

// Verify verifies a document at a time and returns its contents. Whether it answers a
// challenge, and which machine it is about, is for the caller to check: without that it is a
// bearer document, good for six hours. The error is an [*attest.Error] with a check of this
// package, or matches [refusal.ErrRetry] if FetchIssuer failed or the context ended.
func (v *Verifier) Verify(ctx context.Context, document []byte, now time.Time) (*Document, error) {
	return v.verify(ctx, document, now, attest.NewBudget(12)) // as many as an answer may cost
}

func (v *Verifier) verify(ctx context.Context, document []byte, now time.Time, budget *attest.Budget) (*Document, error) {
	signed, err := readSignedData(document)
	if err != nil {
		return nil, err
	}
	d, err := readContent(signed.content)
	if err != nil {
		return nil, err
	}
	leaf, err := signed.signer()
	if err != nil {
		return nil, err
	}
	if d.Chain, d.Name, err = v.trust(ctx, leaf, now, budget); err != nil {
		return nil, err
	}
	if now.Before(d.CreatedOn.Add(-maxSkew)) || now.After(d.ExpiresOn) {
		return nil, checkTime.Refuse("a document of "+stamp(d.CreatedOn)+" to "+stamp(d.ExpiresOn), "one at "+stamp(now))
	}
	if err := budget.Signature(ctx); err != nil {
		return nil, err
	}
	digest := sha256.Sum256(signed.content)
	if err := rsa.VerifyPKCS1v15(leaf.PublicKey.(*rsa.PublicKey), crypto.SHA256, digest[:], signed.signature); err != nil {
		return nil, &refusal.Error{Check: checkSignature, Got: "another signature", Want: "that of the signer's key over the content", Err: err}
	}
	return d, nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// signer returns the one certificate, which must be the one that the signer names.
func (d *signedData) signer() (*x509.Certificate, error) {
	leaf, err := chain.Parse(d.certificate)
	if err != nil {
		return nil, &refusal.Error{Check: checkEncoding, Got: "a bad certificate", Want: "X.509", Err: err}
	}
	if string(leaf.RawIssuer) != string(d.issuer) || leaf.SerialNumber.Cmp(d.serial) != 0 {
		return nil, checkSigners.Refuse("a signer "+d.serial.Text(16)+" and a certificate "+leaf.SerialNumber.Text(16), "the same")
	}
	return leaf, nil
}

// configured are the intermediates of the configuration. Where others can be fetched, one that has
// ended does not stand for its successor.
func (v *Verifier) configured(now time.Time) chain.Pool {
	if v.fetchIssuer == nil {
		return v.intermediates
	}
	return v.intermediates.At(now)
}

// trust finds a chain for the very certificate whose key signed, and verifies it. Checks that
// cost nothing come first, so that an unknown certificate costs no signature.
func (v *Verifier) trust(ctx context.Context, leaf *x509.Certificate, now time.Time, budget *attest.Budget) ([]*x509.Certificate, string, error) {
	paths, missing := chain.Paths(leaf, v.roots, now, v.configured(now), v.fetched.pool(now))
	if len(paths) == 0 && v.fetchIssuer == nil {
		return nil, "", unknownIssuer(missing)
	}
	if err := chain.CheckTime(leaf, now); err != nil {
		return nil, "", err
	}
	name, err := v.nameOf(leaf)
	if err != nil {
		return nil, "", err
	}
	if err := checkLeaf(leaf); err != nil {
		return nil, "", err
	}
	var got chain.Pool
	if len(paths) == 0 {
		paths, got, err = v.fetch(ctx, leaf, now)
	}
	for _, path := range paths {
		if err = chain.Verify(ctx, path, now, x509.ExtKeyUsageServerAuth, budget); err == nil {
			v.fetched.keep(got.In(path), now)
			return path, name, nil
		}
		if errors.Is(err, attest.CheckBudget) || errors.Is(err, refusal.ErrRetry) {
			break
		}
	}
	return nil, "", err
}

// unknownIssuer refuses a certificate whose issuer is not known, and lists unfit fetched certificates.
func unknownIssuer(missing *x509.Certificate, dropped ...string) error {
	e := &refusal.Error{Check: chain.CheckChain, Got: "an unknown authority " + chain.Name(missing.RawIssuer),
		Want: "one of the roots, or an intermediate that leads there"}
	if len(dropped) > 0 {
		e.Err = errors.New("fetched, and not usable: " + strings.Join(dropped, "; "))
	}
	return e
}

// nameOf is the first name in the certificate that belongs to one of the clouds. Common Names
// do not count, nor do names with an empty label.
func (v *Verifier) nameOf(leaf *x509.Certificate) (string, error) {
	for _, name := range leaf.DNSNames {
		lower := strings.ToLower(name)
		for _, d := range v.domains {
			if lower == d || strings.HasSuffix(lower, "."+d) && !slices.Contains(strings.Split(lower, "."), "") {
				return lower, nil
			}
		}
	}
	return "", checkName.Refuse("names "+refusal.OrNothing(refusal.Quotes(leaf.DNSNames)), strings.Join(v.domains, " or ")+", or below")
}

// checkLeaf checks that the certificate is for a TLS server: one for clients proves no name.
// Whether a CA above forbids that is left to the chain's verification.
func checkLeaf(leaf *x509.Certificate) error {
	key, ok := leaf.PublicKey.(*rsa.PublicKey)
	if !ok || key.N.BitLen() < 2048 || key.N.BitLen() > 4096 || key.E > math.MaxInt32 {
		return checkCertificate.Refuse("a key of "+leaf.PublicKeyAlgorithm.String()+" and "+bits(key), "RSA of 2048 to 4096 bits")
	}
	if leaf.IsCA {
		return checkCertificate.Refuse("a CA", "none")
	}
	if leaf.KeyUsage != 0 && leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0 {
		return checkCertificate.Refuse("a key usage without digitalSignature", "with it")
	}
	if !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny) {
		return checkCertificate.Refuse("no extended key usage serverAuth", "it")
	}
	return nil
}

func bits(key *rsa.PublicKey) string {
	if key == nil {
		return "another size"
	}
	return strconv.Itoa(key.N.BitLen()) + " bits"
}
