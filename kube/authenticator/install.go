package authenticator

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/kube/internal/apiclient"
	"github.com/nodeattest/nodeattest/refusal"
)

// shortest is the shortest lifetime that a certificate may have when it arrives.
const shortest = time.Minute

func unfit(got, want string) error {
	return &refusal.Error{Check: certstore.CheckPair, Got: "a certificate " + got, Want: want}
}

// checkUse checks what a certificate must be whenever it is used, beside checkCertificate.
func checkUse(i *item, leaf *x509.Certificate) error {
	switch {
	case leaf.IsCA:
		return unfit("that is a CA", "none")
	case len(leaf.UnhandledCriticalExtensions) != 0:
		return unfit("with a critical extension "+leaf.UnhandledCriticalExtensions[0].String(), "none that is unknown")
	}
	if got, want := namesOf(leaf), i.names(); i.purpose == csr.PurposeServing && !slices.Equal(got, want) {
		return unfit("for "+refusal.Quote(strings.Join(got, " ")), strings.Join(want, " "))
	}
	return nil
}

// namesOf are the names of a certificate, sorted.
func namesOf(leaf *x509.Certificate) []string {
	names := slices.Concat(leaf.DNSNames, leaf.EmailAddresses)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	for _, u := range leaf.URIs {
		names = append(names, u.String())
	}
	return sorted(names)
}

// names are those that a serving certificate is asked for, sorted.
func (i *item) names() []string {
	names := slices.Clone(i.options.DNSNames)
	for _, ip := range i.options.IPAddresses {
		names = append(names, ip.Unmap().String())
	}
	return sorted(names)
}

func sorted(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// checkNew checks what a signer has returned, before it is tried. inHand is the certificate that
// it would replace and that must not end later, if there is one.
//
// A CA of the cluster that the certificate names as its issuer must have signed it. The CA of
// client certificates need not be among those by which the API server is known: then only the
// API server can tell, which is asked in any case. It also decides whether a certificate has
// begun, where it is for the API server: this machine's clock may be slow.
func checkNew(i *item, p, inHand *certstore.Pair, cas []*x509.Certificate) error {
	asked, lasts := i.asked(), left(p.Received, p.Leaf)
	least := max(shortest, asked/10)
	end := p.Leaf.NotAfter.UTC().Format(time.RFC3339)
	switch {
	case lasts < least:
		return unfit(fmt.Sprintf("for %s, until %s by this machine's clock", lasts.Round(time.Second), end), fmt.Sprintf("at least %s, of the %s that were asked for", least, asked))
	case inHand != nil && p.Leaf.NotAfter.Before(certificates{asked: asked}.end(inHand)):
		return unfit("until "+end, "one that does not end before the one in hand")
	case i.purpose == csr.PurposeServing && p.Leaf.NotBefore.After(p.Received.Add(skew)):
		return unfit("from "+p.Leaf.NotBefore.UTC().Format(time.RFC3339), "one that has begun, by this machine's clock")
	}
	var wrong error
	for _, ca := range cas {
		if !bytes.Equal(ca.RawSubject, p.Leaf.RawIssuer) || len(ca.SubjectKeyId) != 0 && len(p.Leaf.AuthorityKeyId) != 0 && !bytes.Equal(ca.SubjectKeyId, p.Leaf.AuthorityKeyId) {
			continue
		}
		if wrong = p.Leaf.CheckSignatureFrom(ca); wrong == nil {
			return nil
		}
	}
	if wrong != nil {
		return &refusal.Error{Check: certstore.CheckPair, Got: "a certificate that names a CA of the cluster as its issuer", Want: "one that it has signed", Err: wrong}
	}
	return nil
}

// accept checks a new certificate and has it work, before it replaces another: the API server
// must know this node by it, or a TLS client the node's name.
func (a *Authenticator) accept(ctx context.Context, i *item, as role, p *certstore.Pair, bare *rest.Config, evidence attest.Prover) error {
	cas, err := apiclient.CAs(bare)
	if err != nil {
		return err
	}
	inHand := a.inHand(i)
	if !as.daemon && !as.plugin { // who wants another one
		inHand = nil
	}
	if err := cmp.Or(a.checkCertificate(i, p.Leaf), checkUse(i, p.Leaf), checkNew(i, p, inHand, cas)); err != nil {
		return err
	}
	if i.purpose == csr.PurposeServing {
		return handshake(ctx, p, i.names()[0])
	}
	var api *apiclient.Client
	if p.Sealed {
		api, err = sealedClient(ctx, bare, evidence.(keyKeeper), p)
	} else {
		api, err = asNode(bare, p)
	}
	if err == nil {
		err = errors.Join(a.whoAmI(ctx, i, api), api.Close())
	}
	if err != nil {
		return fmt.Errorf("the new certificate does not work: %w", err)
	}
	return nil
}

// whoAmI asks the API server who this node is by a certificate. Who may not ask is known.
func (a *Authenticator) whoAmI(ctx context.Context, i *item, api *apiclient.Client) error {
	user, err := api.WhoAmI(ctx)
	if apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if name, _ := csr.SubjectNames(i.purpose, a.c.NodeName); user.Username != name {
		return unfit("by which this is "+refusal.Quote(user.Username), name)
	}
	return nil
}

// handshake is one of TLS, between a server with the certificate and a client that then verifies
// it by itself: nobody else that has signed it is known here.
func handshake(ctx context.Context, p *certstore.Pair, name string) error {
	pair, err := tls.X509KeyPair(p.Chain, p.Key)
	if err != nil {
		return err
	}
	here, there := net.Pipe()
	served := make(chan error, 1)
	go func() {
		s := tls.Server(here, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true})
		served <- errors.Join(s.HandshakeContext(ctx), here.Close())
	}()
	c := tls.Client(there, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}) //nolint:gosec // an alert in the middle would find no reader
	err = errors.Join(c.HandshakeContext(ctx), there.Close(), <-served)
	if err == nil {
		at, roots := p.Received, x509.NewCertPool()
		if at.Before(p.Leaf.NotBefore) { // by less than skew
			at = p.Leaf.NotBefore
		}
		roots.AddCert(p.Leaf)
		_, err = p.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	}
	if err != nil {
		return &refusal.Error{Check: certstore.CheckPair, Got: "a certificate with which no TLS client connects", Want: "one for a server", Err: err}
	}
	return nil
}

// asNode connects with a client certificate.
func asNode(bare *rest.Config, p *certstore.Pair) (*apiclient.Client, error) {
	c := rest.CopyConfig(bare)
	c.CertData, c.KeyData = p.Chain, p.Key
	return apiclient.Connect(c, nil)
}

// checkLimit bounds the question whether a certificate works, for which the kubelet waits.
const checkLimit = 3 * time.Second

// check asks the API server whether a client certificate works, and records it if not.
func (a *Authenticator) check(ctx context.Context, i *item, p *certstore.Pair) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	bare, _, err := a.connection()
	if err == nil {
		var api *apiclient.Client
		if api, err = asNode(bare, p); err == nil {
			err = errors.Join(a.whoAmI(ctx, i, api), api.Close())
		}
	}
	_ = a.note(nil, i.file, func(t *attempts, now time.Time) { t.Checked = now }) // whatever came of it
	if !apierrors.IsUnauthorized(err) && !errors.Is(err, certstore.CheckPair) {
		return
	}
	l, _ := a.store.TryLock() // who holds it attests, and finds out
	_ = a.refuse(l, p)        // in memory in any case
	_ = l.Unlock()
}
