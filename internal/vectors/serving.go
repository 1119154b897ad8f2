package main

import (
	"crypto/x509/pkix"
	"fmt"

	"github.com/nodeattest/nodeattest/csr"
)

// serving are attacks on requests for serving certificates.
func (w *world) serving() {
	san := func(names ...general) func(*asked) {
		return func(a *asked) { a.extensions = []pkix.Extension{sanOf(names...)} }
	}
	own := dns("node-1.example.com")
	ip := func(address string) general { return general{7, address} }
	many := make([]general, 101)
	for i := range many {
		many[i] = dns(fmt.Sprintf("n%d.example.com", i))
	}
	w.addRequests(w.nodeServes, []requestAttack{
		{name: "san-missing", what: "A serving request has no name.", expect: "san-missing", change: func(a *asked) { a.extensions = a.extensions[:1] }},
		{name: "san-of-another-node", what: "A serving request asks for another node's name.", expect: "san-not-own", change: san(own, dns("node-2.example.com"))},
		{name: "san-address-of-another-node", what: "A serving request asks for another node's address.", expect: "san-not-own", change: san(own, ip("\xc0\x00\x02\x02"))},
		{name: "san-of-a-service", what: "A serving request asks for a service's name, which the inventory lists by mistake.", expect: "san-reserved", change: san(own, dns("kubernetes.default.svc"))},
		{name: "san-of-the-apiserver", what: "A serving request asks for the API server's name, which the inventory lists by mistake.", expect: "san-reserved", change: san(own, dns("api.example.com"))},
		{name: "san-address-of-a-service", what: "A serving request asks for an address of the service network, which the inventory lists by mistake.", expect: "san-reserved",
			change: san(own, ip("\x0a\x60\x00\x01"))},
		{name: "san-loopback", what: "A serving request asks for the loopback address, which the inventory lists by mistake.", expect: "san-reserved", change: san(own, ip("\x7f\x00\x00\x01"))},
		{name: "san-wildcard", what: "A serving request asks for a wildcard.", expect: "san-form", change: san(own, dns("*.example.com"))},
		{name: "san-in-capitals", what: "A serving request asks for its name in capital letters.", expect: "san-form", change: san(dns("NODE-1.example.com"))},
		{name: "san-like-an-address", what: "A DNS name is an IPv4 address in letters.", expect: "san-form", change: san(own, dns("192.0.2.1"))},
		{name: "san-email", what: "A serving request asks for a mail address.", expect: "san-kind", change: san(own, general{1, "root@example.com"})},
		{name: "san-uri", what: "A serving request asks for a URI.", expect: "san-kind", change: san(own, general{6, "spiffe://example.com/x"})},
		{name: "san-registered-id", what: "A serving request asks for a registered identifier, which crypto libraries pass over.", expect: "san-kind", change: san(own, general{8, "\x2a\x03\x04"})},
		{name: "san-too-many", what: "A serving request asks for 101 names.", expect: "san-count", change: san(many...)},
		{name: "serving-with-client-usages", what: "A serving request has the usages of a client's.", expect: "usages", change: func(a *asked) { a.usages = csr.Usages(csr.PurposeClient, false) }},
	})
	w.addRequests(w.kubeletServes, []requestAttack{
		{name: "serving-by-a-certificate-that-was-not-attested", what: "A kubelet asks for a serving certificate with a client certificate that was not issued through attestation.", expect: "requester-credential",
			change: object(func(r *csr.Request) {
				r.Spec.Extra = map[string][]string{csr.ExtraCredentialID: {"X509SHA256=3333333333333333333333333333333333333333333333333333333333333333"}}
			})},
		{name: "serving-by-another-nodes-certificate", what: "A kubelet asks for a serving certificate with a client certificate that was issued to another node.", expect: "requester-credential",
			change: object(func(r *csr.Request) { r.Spec.Extra = map[string][]string{csr.ExtraCredentialID: {otherCred}} })},
		{name: "serving-without-a-credential", what: "A kubelet asks for a serving certificate, and the API server states no credential.", expect: "requester-credential",
			change: object(func(*csr.Request) {})},
		{name: "serving-by-two-credentials", what: "A kubelet asks for a serving certificate, and two credentials are stated.", expect: "requester-credential",
			change: object(func(r *csr.Request) {
				r.Spec.Extra = map[string][]string{csr.ExtraCredentialID: {credential, otherCred}}
			})},
		{name: "kubelet-serving-for-too-long", what: "A kubelet asks Kubernetes' own signer for more than a day.", expect: "expiration", change: func(a *asked) { a.expiration = 86401 }},
		{name: "kubelet-serving-without-expiration", what: "A kubelet asks Kubernetes' own signer without saying for how long.", expect: "expiration", change: func(a *asked) { a.expiration = 0 }},
	})
}
