// Package nodecert checks a node's certificates: a signer may return one for another node, of another
// CA or with a wrong lifetime, which must not replace a good one.
package nodecert

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/refusal"
)

// shortest is the minimum lifetime of a certificate when it arrives.
const shortest = time.Minute

// Skew is the tolerated difference between clocks.
const Skew = time.Minute

// Wanted has the parameters of a certificate to request.
type Wanted struct {
	Purpose  csr.Purpose
	NodeName string
	// Lifetime is in whole seconds; 0 leaves it to the signer.
	Lifetime time.Duration
	// Once says that the certificate is not renewed, as the node gets only one.
	Once bool
	// Options has the names of a serving certificate.
	Options csr.CreateOptions
}

// Identify adds the provider ID that ask returns to the request; a nil ask adds none.
func (w *Wanted) Identify(ctx context.Context, ask func(ctx context.Context) (string, error)) error {
	if ask == nil {
		return nil
	}
	id, err := ask(ctx)
	if err == nil {
		_, err = oid.MarshalProviderID(id) // which has a length
	}
	if err != nil {
		return fmt.Errorf("providerID: %w", err)
	}
	w.Options.ProviderID = id
	return nil
}

func unfit(got, want string) error {
	return &refusal.Error{Check: certstore.CheckPair, Got: "a certificate " + got, Want: want}
}

// User returns the username that the API server reads from the certificate.
func (w *Wanted) User() string {
	name, _ := w.Purpose.SubjectNames(w.NodeName)
	return name
}

// Check checks the subject, usages and names of a certificate, before each use. The error is
// [certstore.CheckPair].
func (w *Wanted) Check(leaf *x509.Certificate) error {
	name, organization := w.Purpose.SubjectNames(w.NodeName)
	usage := x509.ExtKeyUsageClientAuth
	if w.Purpose == csr.PurposeServing {
		usage = x509.ExtKeyUsageServerAuth
	}
	switch got := leaf.Subject; {
	case got.CommonName != name || !slices.Equal(got.Organization, []string{organization}):
		return unfit("for "+got.String(), "CN="+name+",O="+organization)
	case !slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{usage}):
		return unfit("for another use", "the extended key usage of a "+w.Purpose.String()+" certificate")
	case leaf.IsCA:
		return unfit("that is a CA", "a certificate of a node")
	case len(leaf.UnhandledCriticalExtensions) != 0:
		return unfit("with a critical extension "+leaf.UnhandledCriticalExtensions[0].String(), "only known critical extensions")
	}
	if got, want := namesOf(leaf), w.names(); w.Purpose == csr.PurposeServing && !slices.Equal(got, want) {
		return unfit("for "+refusal.Quote(strings.Join(got, " ")), strings.Join(want, " "))
	}
	return nil
}

// namesOf returns the names of a certificate, sorted.
func namesOf(leaf *x509.Certificate) []string {
	names := slices.Concat(leaf.DNSNames, leaf.EmailAddresses)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	for _, u := range leaf.URIs {
		names = append(names, u.String())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// names returns the requested names, sorted.
func (w *Wanted) names() []string {
	names := slices.Clone(w.Options.DNSNames)
	for _, ip := range w.Options.IPAddresses {
		names = append(names, ip.Unmap().String())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// CheckNew checks a new certificate, before it is used at the API server. current is the certificate
// that it would replace, or nil; the new one must not expire before it. The error is
// [certstore.CheckPair].
//
// If the certificate names a CA of cas as its issuer, that CA must have signed it. The CA of client
// certificates need not be in cas: then only the API server can verify the signature, which the caller
// has it do in any case. The API server also checks notBefore of a client certificate: this machine's
// clock may be slow.
func (w *Wanted) CheckNew(p, current *certstore.Pair, cas []*x509.Certificate) error {
	if err := w.Check(p.Leaf); err != nil {
		return err
	}
	least, lasts := max(shortest, w.Lifetime/10), left(p.Received, p.Leaf)
	end := p.Leaf.NotAfter.UTC().Format(time.RFC3339)
	switch {
	case lasts < least:
		return unfit(fmt.Sprintf("for %s, until %s by this machine's clock", lasts.Round(time.Second), end), fmt.Sprintf("at least %s, of the requested %s", least, w.Lifetime))
	case current != nil && p.Leaf.NotAfter.Before(w.end(current)):
		return unfit("until "+end, "one that does not expire before the current certificate")
	case w.Purpose == csr.PurposeServing && p.Leaf.NotBefore.After(p.Received.Add(Skew)):
		return unfit("from "+p.Leaf.NotBefore.UTC().Format(time.RFC3339), "one that is already valid, by this machine's clock")
	}
	return checkIssuer(p.Leaf, cas)
}

func checkIssuer(leaf *x509.Certificate, cas []*x509.Certificate) (err error) {
	for _, ca := range cas {
		if !namesIssuer(leaf, ca) {
			continue
		}
		wrong := leaf.CheckSignatureFrom(ca)
		if wrong == nil {
			return nil
		}
		err = &refusal.Error{Check: certstore.CheckPair, Got: "a certificate with a CA of the cluster as its issuer, and a wrong signature", Want: "a signature of that CA", Err: wrong}
	}
	return err
}

// namesIssuer reports whether a certificate names a CA as its issuer: by the key identifier or, where
// one of the two lacks it, by the name. Upper and lower case, and the number of spaces, do not
// distinguish names (RFC 5280, 7.1).
func namesIssuer(leaf, ca *x509.Certificate) bool {
	if len(leaf.AuthorityKeyId) > 0 && len(ca.SubjectKeyId) > 0 {
		return bytes.Equal(leaf.AuthorityKeyId, ca.SubjectKeyId)
	}
	oneSpace := func(n pkix.Name) string { return strings.Join(strings.Fields(n.String()), " ") }
	return strings.EqualFold(oneSpace(leaf.Issuer), oneSpace(ca.Subject))
}

// left returns the remaining lifetime of a certificate when it arrives: at most its whole lifetime, as
// this machine's clock may be slow.
func left(received time.Time, leaf *x509.Certificate) time.Duration {
	return min(leaf.NotAfter.Sub(received), leaf.NotAfter.Sub(leaf.NotBefore))
}

// end returns the end of a certificate, or of the requested lifetime if that is earlier.
func (w *Wanted) end(p *certstore.Pair) time.Time {
	if latest := p.Received.Add(w.Lifetime); w.Lifetime != 0 && p.Leaf.NotAfter.After(latest) {
		return latest
	}
	return p.Leaf.NotAfter
}

// RenewAt returns the time of renewal: at random between 65 and 80 % of the remaining lifetime, or of
// the requested one if that is shorter, so that nodes that joined together renew at different times.
// With Once it is the last second.
func (w *Wanted) RenewAt(received time.Time, leaf *x509.Certificate) time.Time {
	if w.Once {
		return leaf.NotAfter.Add(-time.Second)
	}
	lasts := left(received, leaf)
	if w.Lifetime != 0 {
		lasts = min(lasts, w.Lifetime)
	}
	return received.Add(time.Duration((0.65 + 0.15*rand.Float64()) * float64(lasts)))
}

// Due returns when a stored certificate is renewed: at its Renew, but not later than 80 % of the
// requested lifetime, and now if its Received is in the future. With Once it is due when it has expired.
func (w *Wanted) Due(p *certstore.Pair, now time.Time) time.Time {
	latest := p.Received.Add(w.Lifetime / 5 * 4)
	switch {
	case w.Once:
		return p.Leaf.NotAfter
	case p.Received.After(now.Add(Skew)):
		return now
	case w.Lifetime != 0 && p.Renew.After(latest):
		return latest
	}
	return p.Renew
}

// Serve has a TLS client connect to a server with the certificate. The error is
// [certstore.CheckPair].
func (w *Wanted) Serve(ctx context.Context, p *certstore.Pair) error {
	if err := handshake(ctx, p, w.names()[0]); err != nil {
		return &refusal.Error{Check: certstore.CheckPair, Got: "a certificate that a TLS client rejects", Want: "a server certificate", Err: err}
	}
	return nil
}

// handshake connects a TLS client to a server with the certificate. The client then verifies the
// certificate as its own root, as the issuer is not known here.
func handshake(ctx context.Context, p *certstore.Pair, name string) error {
	pair, err := tls.X509KeyPair(p.Chain, p.Key)
	if err != nil {
		return err
	}
	here, there := net.Pipe()
	served := recovered.Go(func() error {
		s := tls.Server(here, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true})
		return errors.Join(s.HandshakeContext(ctx), here.Close())
	})
	c := tls.Client(there, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}) //nolint:gosec // an alert in the middle would find no reader
	if err = errors.Join(c.HandshakeContext(ctx), there.Close(), <-served); err != nil {
		return err
	}
	at := slices.MaxFunc([]time.Time{p.Received, p.Leaf.NotBefore}, time.Time.Compare) // they differ by less than Skew
	roots := x509.NewCertPool()
	roots.AddCert(p.Leaf)
	_, err = p.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err
}
