package forge

import (
	"crypto/x509/pkix"
	"fmt"

	"github.com/nodeattest/nodeattest/csr"
)

// servingAttacks are attacks on requests for serving certificates with evidence.
func servingAttacks() []RequestAttack {
	san := func(names ...general) func(*Asked) {
		return func(a *Asked) { a.Extensions = []pkix.Extension{SANOf(names...)} }
	}
	own := dns("node-1.example.com")
	ip := func(address string) general { return general{7, address} }
	many := make([]general, 101)
	for i := range many {
		many[i] = dns(fmt.Sprintf("n%d.example.com", i))
	}
	return []RequestAttack{
		{Name: "san-missing", live: "serving-without-names", What: "A serving request has no name.", Expect: "san-missing", Change: func(a *Asked) { a.Extensions = a.Extensions[:1] }},
		{Name: "san-of-another-node", live: "serving-name-of-another-node", What: "A serving request asks for another node's name.", Expect: "san-not-own", Change: san(own, dns("node-2.example.com"))},
		{Name: "san-address-of-another-node", live: "serving-address-of-another-node", What: "A serving request asks for another node's address.", Expect: "san-not-own", Change: san(own, ip("\xc0\x00\x02\x02"))},
		{Name: "san-of-a-service", live: "serving-name-of-a-service", What: "A serving request asks for a service's name, which the inventory lists by mistake.", Expect: "san-reserved", Change: san(own, dns("kubernetes.default.svc"))},
		{Name: "san-of-the-apiserver", What: "A serving request asks for the API server's name, which the inventory lists by mistake.", Expect: "san-reserved", Change: san(own, dns("api.example.com"))},
		{Name: "san-address-of-a-service", What: "A serving request asks for an address of the service network, which the inventory lists by mistake.", Expect: "san-reserved",
			Change: san(own, ip("\x0a\x60\x00\x01"))},
		{Name: "san-loopback", What: "A serving request asks for the loopback address, which the inventory lists by mistake.", Expect: "san-reserved", Change: san(own, ip("\x7f\x00\x00\x01"))},
		{Name: "san-wildcard", live: "serving-wildcard", What: "A serving request asks for a wildcard.", Expect: "san-form", Change: san(own, dns("*.example.com"))},
		{Name: "san-in-capitals", What: "A serving request asks for its name in capital letters.", Expect: "san-form", Change: san(dns("NODE-1.example.com"))},
		{Name: "san-like-an-address", What: "A DNS name is an IPv4 address in letters.", Expect: "san-form", Change: san(own, dns("192.0.2.1"))},
		{Name: "san-email", What: "A serving request asks for a mail address.", Expect: "san-kind", Change: san(own, general{1, "root@example.com"})},
		{Name: "san-uri", live: "serving-uri", What: "A serving request asks for a URI.", Expect: "san-kind", Change: san(own, general{6, "spiffe://example.com/x"})},
		{Name: "san-registered-id", What: "A serving request asks for a registered identifier, which crypto libraries pass over.", Expect: "san-kind", Change: san(own, general{8, "\x2a\x03\x04"})},
		{Name: "san-too-many", What: "A serving request asks for 101 names.", Expect: "san-count", Change: san(many...)},
		{Name: "serving-with-client-usages", What: "A serving request has the usages of a client's.", Expect: "usages", Change: func(a *Asked) { a.Usages = csr.Usages(csr.PurposeClient, false) }},
	}
}

// KubeletAttacks are attacks on a kubelet's own requests.
func KubeletAttacks() []RequestAttack {
	return []RequestAttack{
		{Name: "serving-by-a-certificate-that-was-not-attested", What: "A kubelet asks for a serving certificate with a client certificate that was not issued through attestation.", Expect: "requester-credential",
			Change: object(func(r *csr.Request) {
				r.Spec.Extra = map[string][]string{csr.ExtraCredentialID: {"X509SHA256=3333333333333333333333333333333333333333333333333333333333333333"}}
			})},
		{Name: "serving-by-another-nodes-certificate", What: "A kubelet asks for a serving certificate with a client certificate that was issued to another node.", Expect: "requester-credential",
			Change: object(func(r *csr.Request) { r.Spec.Extra = map[string][]string{csr.ExtraCredentialID: {CredentialTwo}} })},
		{Name: "serving-without-a-credential", What: "A kubelet asks for a serving certificate, and the API server states no credential.", Expect: "requester-credential",
			Change: object(func(*csr.Request) {})},
		{Name: "serving-by-two-credentials", What: "A kubelet asks for a serving certificate, and two credentials are stated.", Expect: "requester-credential",
			Change: object(func(r *csr.Request) {
				r.Spec.Extra = map[string][]string{csr.ExtraCredentialID: {CredentialOne, CredentialTwo}}
			})},
		{Name: "kubelet-serving-for-too-long", What: "A kubelet asks Kubernetes' own signer for more than a day.", Expect: "expiration", Change: func(a *Asked) { a.Expiration = 86401 }},
		{Name: "kubelet-serving-without-expiration", What: "A kubelet asks Kubernetes' own signer without saying for how long.", Expect: "expiration", Change: func(a *Asked) { a.Expiration = 0 }},
	}
}
