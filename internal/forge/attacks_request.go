package forge

import (
	"cmp"
	"crypto"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
)

// Asked is a request object before it is encoded. A vector changes one thing of a
// good one.
type Asked struct {
	Join
	*PKCS10
	w      *Bench
	bundle func(*csr.Bundle)   // changes provider and data
	object func(*csr.Request)  // changes the object at last
	raw    func([]byte) []byte // changes the PKCS#10 request in its block at last
	Target string              // the signer that a hello states, "" for none
}

// RequestAttack is one change to a good request.
type RequestAttack = Attack[func(*Asked)]

// The policies that a request attack can need.
const (
	UnderFlag       = "flag"
	UnderProviderID = "provider-id"
	UnderNoMachines = "no-machines"
)

// BootstrapAsks is a bootstrap token that asks for a client certificate.
func (w *Bench) BootstrapAsks() *Asked {
	return &Asked{w: w, Join: w.Defaults(Join{}), PKCS10: w.NewPKCS10()}
}

// NodeAsks is a node that asks for itself.
func (w *Bench) NodeAsks() *Asked {
	a := w.BootstrapAsks()
	a.Username, a.Groups = "system:node:"+NodeName, []string{"system:nodes", "system:authenticated"}
	return a
}

// NodeServes is a node that asks for a serving certificate with evidence of its own.
func (w *Bench) NodeServes() *Asked {
	a := w.NodeAsks()
	a.Signer, a.Usages = cmp.Or(w.Serving, csr.SignerServingTPM), csr.Usages(csr.PurposeServing, false)
	a.Extensions = append(a.Extensions, SANOf(dns("node-1.example.com"), general{7, "\xc0\x00\x02\x01"}))
	return a
}

// KubeletServes is a kubelet's own serving request, which inherits the attestation of
// the client certificate that it comes with.
func (w *Bench) KubeletServes() *Asked {
	a := w.NodeServes()
	a.Signer, a.bundle, a.Expiration = csr.SignerKubeletServing, plain, 86400
	a.Extensions = a.Extensions[1:]
	a.object = func(r *csr.Request) { r.Spec.Extra = map[string][]string{csr.ExtraCredentialID: {CredentialOne}} }
	return a
}

// Encode is the request object, with evidence that only the node policy sees.
func (a *Asked) Encode() *csr.Request {
	return a.Filed(&csr.Bundle{Provider: "tpm/v1", Data: []byte("the node policy does not look at this")})
}

// Filed is the request object with this evidence, but where the attack is on that.
func (a *Asked) Filed(b *csr.Bundle) *csr.Request {
	w, whole := a.w, csr.Bundle{Request: a.w.Request, Provider: b.Provider, Data: b.Data}
	if a.bundle != nil {
		a.bundle(&whole)
	}
	r := a.Join.Object(&whole, a.Signer, w.AnsweredAt())
	// The request is put in as text: Bundle.Encode would refuse some.
	r.Spec.Request = []byte(strings.Replace(string(r.Spec.Request), PEMBlock(csr.BlockRequest, w.Request), PEMBlock(csr.BlockRequest, a.Asks()), 1))
	if a.object != nil {
		a.object(r)
	}
	return r
}

// Asks is the PKCS#10 request.
func (a *Asked) Asks() []byte { return Change(a.DER(), a.raw) }

func as(node string) func(*Asked) { return func(a *Asked) { a.As(node) } }

// ForRecovery asks for a node's recovery certificate.
func (a *Asked) ForRecovery() {
	a.Signer, a.Usages = csr.SignerRecoveryTPM, csr.Usages(csr.PurposeRecovery, false)
	a.Subject = []Rdn{Text(oid.Organization, "nodeattest:recovery"), Text(oid.CommonName, "nodeattest:recovery:"+NodeName)}
}

// ByRecoveryUser has a node's recovery user ask.
func (a *Asked) ByRecoveryUser(node string) {
	a.Username, a.Groups = "nodeattest:recovery:"+node, []string{"nodeattest:recovery", "system:authenticated"}
}

// As asks for another node, which has no provider ID.
func (a *Asked) As(node string) {
	a.Subject[1], a.Extensions = Text(oid.CommonName, "system:node:"+node), nil
}

// OnObject changes the object at last.
func (a *Asked) OnObject(how func(*csr.Request)) { a.object = how }

// OnBundle changes request, provider and data before they are encoded.
func (a *Asked) OnBundle(how func(*csr.Bundle)) { a.bundle = how }

// plain leaves the evidence out.
func plain(b *csr.Bundle) { b.Provider, b.Data = "", nil }

// RequestTable is a good request and the attacks that change it.
type RequestTable struct {
	Good    func() *Asked
	Attacks []RequestAttack
}

// RequestTables are the attacks on requests, but for those that a kubelet files without
// evidence.
func (w *Bench) RequestTables() []RequestTable {
	return []RequestTable{
		{w.BootstrapAsks, slices.Concat(infoAttacks(), w.keyEncodings(), w.extensionEncodings(), w.objectAttacks(), subjectAttacks(), w.contentAttacks())},
		{w.NodeAsks, w.nodeAttacks()},
		{w.NodeServes, servingAttacks()},
	}
}

// object is asked's shorthand for a change of the object.
func object(how func(*csr.Request)) func(*Asked) { return func(a *Asked) { a.object = how } }

func (w *Bench) objectAttacks() []RequestAttack {
	deleted := w.Now
	condition := func(kind string) func(*Asked) {
		return object(func(r *csr.Request) {
			r.Status.Conditions = []csr.Condition{{Type: kind, Status: "True", Reason: "SomebodyElse"}}
		})
	}
	return []RequestAttack{
		{Name: "request-denied", What: "The request has been denied, which is final.", Expect: "request-closed", Change: condition(csr.ConditionDenied)},
		{Name: "request-failed", What: "The request has failed, which is final.", Expect: "request-closed", Change: condition(csr.ConditionFailed)},
		{Name: "request-signed", What: "The request has a certificate.", Expect: "request-closed", Change: object(func(r *csr.Request) { r.Status.Certificate = []byte("x") })},
		{Name: "request-being-deleted", What: "The request is being deleted.", Expect: "request-closed", Change: object(func(r *csr.Request) { r.Metadata.DeletionTimestamp = &deleted })},
		{Name: "approved-by-somebody-else-without-evidence", What: "Somebody else approved a request that has no evidence.", Expect: "attestation-provider",
			Change: func(a *Asked) { a.bundle = plain; condition(csr.ConditionApproved)(a) }},
		{Name: "annotations-in-place-of-evidence", What: "The requester set the annotation with an EK and one with a version, and sends no evidence.", Expect: "attestation-provider",
			Change: func(a *Asked) {
				a.bundle = plain
				a.object = func(r *csr.Request) {
					r.Metadata.Annotations = map[string]string{"cluster-x-k8s-io/tpm-endorsement-key": "AAAA", "cluster-x-k8s-io/tpm-version": "v1"}
				}
			}},
		{Name: "insecure-provider-under-the-tpm-signer", live: "provider-insecure", What: "The request is for the TPM signer and its evidence for the insecure provider.", Expect: "attestation-provider",
			Change: func(a *Asked) { a.bundle = func(b *csr.Bundle) { b.Provider = "insecure/v1" } }},
		{Name: "signer-insecure", What: "The request is for the insecure signer, which this policy does not serve, with TPM evidence.", Expect: "signer-name", Retry: true,
			Change: func(a *Asked) { a.Signer = csr.SignerClientInsecure }},
		{Name: "signer-unknown", live: "signer-of-another-provider", What: "The request is for somebody else's signer, who may answer it.", Expect: "signer-name", Retry: true,
			Change: func(a *Asked) { a.Signer = "example.com/signer" }},
		{Name: "signer-with-the-proposals-spelling", live: "signer-misspelt", What: "The signer is spelt with the prefix cluster-x-k8s-io/, which the API server refuses.", Expect: "signer-name", Retry: true,
			Change: func(a *Asked) { a.Signer = "cluster-x-k8s-io/kube-apiserver-client-kubelet-tpm" }},
		{Name: "filed-under-a-third-signer", live: "-", What: "A hello for one signer is filed under a third one.", Expect: "signer-name",
			Change: func(a *Asked) { a.Target, a.Signer = csr.SignerClientTPM, csr.SignerServingTPM }},
		{Name: "username-unknown", live: "requester-is-a-user", What: "The requester is a person.", Expect: "request-username", Change: func(a *Asked) { a.Username = "alice" }},
		{Name: "username-of-a-service-account", What: "The requester is a service account.", Expect: "request-username",
			Change: func(a *Asked) { a.Username = "system:serviceaccount:kube-system:default" }},
		{Name: "username-with-a-long-token-id", What: "The bootstrap user's token id has seven characters.", Expect: "request-username", Change: func(a *Asked) { a.Username = "system:bootstrap:abc1234" }},
		{Name: "groups-without-authenticated", What: "The groups do not contain system:authenticated.", Expect: "request-groups", Change: func(a *Asked) { a.Groups = a.Groups[:1] }},
		{Name: "groups-of-a-node", What: "A bootstrap token is in the nodes' group.", Expect: "request-groups", Change: func(a *Asked) { a.Groups = append(a.Groups, "system:nodes") }},
		{Name: "bootstrap-asks-for-a-serving-certificate", live: "serving-by-bootstrap-token", What: "A bootstrap token asks for a serving certificate.", Expect: "requester-purpose",
			Change: func(a *Asked) {
				username, groups := a.Username, a.Groups
				*a = *w.NodeServes()
				a.Username, a.Groups = username, groups
			}},
		{Name: "bootstrap-asks-for-a-recovery-certificate", What: "A bootstrap token asks for a recovery certificate.", Expect: "requester-purpose",
			Change: (*Asked).ForRecovery},
		{Name: "usage-server-auth", live: "usage-server-auth-added", What: "A client request asks for server auth as well.", Expect: "usages", Change: func(a *Asked) { a.Usages = append(a.Usages, "server auth") }},
		{Name: "usage-cert-sign", What: "The request asks for cert sign.", Expect: "usages", Change: func(a *Asked) { a.Usages = append(a.Usages, "cert sign") }},
		{Name: "usage-missing", What: "The request does not ask for client auth.", Expect: "usages", Change: func(a *Asked) { a.Usages = a.Usages[:1] }},
		{Name: "usage-twice", What: "A usage is asked for twice.", Expect: "usages", Change: func(a *Asked) { a.Usages = append(a.Usages, a.Usages[0]) }},
		{Name: "expiration-too-short", What: "The lifetime asked for is under ten minutes.", Expect: "expiration", Change: func(a *Asked) { a.Expiration = 599 }},
	}
}

func subjectAttacks() []RequestAttack {
	cn := Text(oid.CommonName, "system:node:"+NodeName)
	subject := func(s ...Rdn) func(*Asked) { return func(a *Asked) { a.Subject = s } }
	o := Text(oid.Organization, "system:nodes")
	return []RequestAttack{
		{Name: "common-name-other", live: "common-name-of-no-node", What: "The common name is no node's.", Expect: "subject-common-name", Change: subject(o, Text(oid.CommonName, "admin"))},
		{Name: "common-name-missing", What: "There is no common name.", Expect: "subject-common-name", Change: subject(o)},
		{Name: "common-name-without-node", live: "common-name-without-a-node", What: "The common name ends behind the prefix.", Expect: "subject-common-name", Change: subject(o, Text(oid.CommonName, "system:node:"))},
		{Name: "common-name-in-capitals", What: "The node name has a capital letter.", Expect: "subject-common-name", Change: subject(o, Text(oid.CommonName, "system:node:Node-1"))},
		{Name: "common-name-with-nul", What: "A NUL byte stands behind the node name.", Expect: "subject-common-name", Change: subject(o, Text(oid.CommonName, "system:node:"+NodeName+"\x00"))},
		{Name: "common-name-duplicate", What: "There are two common names; some readers take the last.", Expect: "subject-common-name",
			Change: subject(o, cn, Text(oid.CommonName, "system:node:"+OtherNode))},
		{Name: "common-name-in-utf16", What: "The common name is a BMPString.", Expect: "subject-common-name", Change: subject(o, Rdn{{oid.CommonName, 30, "\x00a"}})},
		{Name: "organization-other", live: "organization-masters", What: "The organization is system:masters.", Expect: "subject-organization", Change: subject(Text(oid.Organization, "system:masters"), cn)},
		{Name: "organization-missing", What: "There is no organization.", Expect: "subject-organization", Change: subject(cn)},
		{Name: "organization-second", live: "organization-added", What: "There is a second organization, system:masters.", Expect: "subject-organization",
			Change: subject(o, Text(oid.Organization, "system:masters"), cn)},
		{Name: "organizational-unit", What: "The subject has an organizational unit.", Expect: "subject-extra-rdn", Change: subject(o, Text(oid.OrganizationalUnit, "system:masters"), cn)},
		{Name: "user-uid", live: "uid-in-the-subject", What: "The subject has the attribute that the API server reads as a user's UID.", Expect: "subject-extra-rdn",
			Change: subject(o, cn, Text(oid.KubernetesUID, "0"))},
		{Name: "multi-valued-rdn", What: "Common name and organization stand in one RDN.", Expect: "subject-multi-value",
			Change: subject(Rdn{o[0], cn[0]})},
	}
}

// contentAttacks are about key, attributes and extensions.
func (w *Bench) contentAttacks() []RequestAttack {
	extend := func(e ...pkix.Extension) func(*Asked) {
		return func(a *Asked) { a.Extensions = append(a.Extensions, e...) }
	}
	ext := func(value []byte, arcs ...int) pkix.Extension {
		return pkix.Extension{Id: asn1.ObjectIdentifier(arcs), Value: value}
	}
	attribute := func(id oid.OID, value []byte) func(*Asked) {
		return func(a *Asked) { a.attributes = [][]byte{requestAttribute(id, value)} }
	}
	keyed := func(key crypto.Signer) func(*Asked) { return func(a *Asked) { a.PKCS10.Key = Repeatable{key} } }
	caTrue := TLV(0x30, []byte{1, 1, 0xff})
	return []RequestAttack{
		{Name: "ca-extension", What: "The request asks for basicConstraints with CA:TRUE.", Expect: "extension-not-allowed", Change: extend(ext(caTrue, 2, 5, 29, 19))},
		{Name: "key-usage-extension", What: "The request asks for a key usage of its own: keyCertSign.", Expect: "extension-not-allowed", Change: extend(ext([]byte{3, 2, 2, 4}, 2, 5, 29, 15))},
		{Name: "ext-key-usage-extension", What: "The request asks for an extended key usage of its own.", Expect: "extension-not-allowed",
			Change: extend(ext(TLV(0x30, oidDER(oid.KpServerAuth)), 2, 5, 29, 37))},
		{Name: "extension-unknown", live: "unknown-extension", What: "The request asks for an extension that nobody knows.", Expect: "extension-not-allowed", Change: extend(ext([]byte{5, 0}, 2, 999, 2))},
		{Name: "flag-without-identifier", What: "The flag extension of the 2018 document stands under an identifier that the policy does not know.", Expect: "extension-not-allowed",
			Change: extend(ext([]byte{1, 1, 0xff}, 2, 999, 3))},
		{Name: "flag-false", What: "The flag extension says FALSE.", Expect: "flag", Change: extend(ext([]byte{1, 1, 0}, 2, 999, 3)), Under: UnderFlag},
		{Name: "flag-missing", What: "The policy asks for the flag extension, and there is none.", Expect: "flag", Change: func(*Asked) {}, Under: UnderFlag},
		{Name: "challenge-password", What: "The request has a challengePassword attribute.", Expect: "attribute-not-allowed",
			Change: attribute(oid.ChallengePassword, TLV(0x13, []byte("x")))},
		{Name: "attestation-attribute-beside-evidence", What: "The request has the standard's attestation attribute, and evidence behind it.", Expect: "attribute-not-allowed",
			Change: attribute(oid.IDAAAttestation, TLV(0x30, []byte{5, 0}))},
		{Name: "san-on-a-client-certificate", live: "dns-name-on-client", What: "A client request asks for a DNS name.", Expect: "san-on-client", Change: extend(SANOf(dns("node-1.example.com")))},
		{Name: "san-empty-on-a-client-certificate", What: "A client request has an empty subjectAltName.", Expect: "san-on-client", Change: extend(SANOf())},
		{Name: "key-ed25519", What: "The request's key is Ed25519.", Expect: "key-type",
			Change: keyed(ed25519.NewKeyFromSeed(Derive("Ed25519", 32)))},
		{Name: "key-weak-rsa", live: "-", What: "The request's key is RSA with 1024 bits.", Expect: "key-strength", Change: keyed(w.RSA1024)},
		{Name: "key-weak-curve", What: "The request's key is on P-224.", Expect: "key-strength",
			Change: keyed(ECKey(elliptic.P224(), "P-224", nil))},
		{Name: "key-on-a-curve-not-taken", What: "The request's key is on P-521, which the policy does not take.", Expect: "key-strength",
			Change: keyed(ECKey(elliptic.P521(), "P-521", nil))},
		{Name: "self-signature", live: "request-signature-broken", What: "The request is not signed with its own key.", Expect: "request-signature", Change: func(a *Asked) { a.Corrupt = true }},
		{Name: "provider-id-of-another-node", live: "provider-id-of-another-machine", What: "The request claims another machine's provider ID.", Expect: "provider-id-mismatch",
			Change: func(a *Asked) { a.Extensions = []pkix.Extension{Must(oid.ProviderIDExtension("sim://vectors/node-2"))} }},
		{Name: "provider-id-required", What: "The policy asks for a provider ID, and the request claims none.", Expect: "provider-id-missing",
			Change: func(a *Asked) { a.Extensions = nil }, Under: UnderProviderID},
		{Name: "machine-unknown", What: "There is no machine for this node name.", Expect: "machine-unknown", Change: func(*Asked) {}, Under: UnderNoMachines},
		{Name: "machine-not-ready", What: "The machine is not ready to bootstrap.", Expect: "machine-not-ready",
			Change: as("node-3")},
		{Name: "machine-of-another-node", live: "inventory-of-another-node", What: "The machine that is found is recorded under another node's name.", Expect: "machine-other-node",
			Change: as("node-4")},
		{Name: "everything-at-once", live: "-", What: "Many rules are broken at once, and each is reported.", Expect: "usages",
			Also: []string{"attestation-provider", "expiration", "extension-not-allowed", "key-strength", "request-closed", "request-groups", "san-on-client", "subject-extra-rdn", "subject-organization"},
			Change: func(a *Asked) {
				a.Usages, a.Groups, a.Expiration, a.bundle = nil, nil, 1, plain
				a.PKCS10.Key = Repeatable{w.RSA1024}
				a.Subject = append(a.Subject[1:], Text(oid.OrganizationalUnit, "x"))
				extend(ext(caTrue, 2, 5, 29, 19), SANOf(dns("x")))(a)
				a.object = func(r *csr.Request) { r.Status.Certificate = []byte("x") }
			}},
	}
}

// nodeAttacks are changes to what a node asks for.
func (w *Bench) nodeAttacks() []RequestAttack {
	return []RequestAttack{
		{Name: "node-asks-for-another-node", live: "requester-is-another-node", What: "A node's certificate asks for another node's.", Expect: "requester-other-node",
			Change: as(OtherNode)},
		{Name: "recovery-user-asks-for-another-node", What: "A node's recovery user asks for another node.", Expect: "requester-other-node",
			Change: func(a *Asked) { a.ByRecoveryUser(OtherNode) }},
		{Name: "recovery-user-asks-for-a-serving-certificate", What: "A node's recovery user asks for a serving certificate.", Expect: "requester-purpose",
			Change: func(a *Asked) { *a = *w.NodeServes(); a.ByRecoveryUser(NodeName) }},
		{Name: "node-with-another-group", live: "requester-is-a-master", What: "The node's user is in system:masters too.", Expect: "request-groups",
			Change: func(a *Asked) { a.Groups = append(a.Groups, "system:masters") }},
	}
}

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
