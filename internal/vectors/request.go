package main

import (
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509/pkix"
	"encoding/asn1"
	"strings"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/vector"
	"github.com/nodeattest/nodeattest/oid"
)

// asked is a request object before it is encoded. A vector changes one thing of a
// good one.
type asked struct {
	join
	*pkcs10
	provider string
	data     []byte
	object   func(*csr.Request)  // changes the object at last
	raw      func([]byte) []byte // changes the PKCS#10 request in its block at last
	target   string
}

// requestAttack is one change to a good request.
type requestAttack struct {
	name, what, expect string
	also               []string
	retry              bool
	change             func(*asked)
	env                *vector.Environment
}

// evidence stands behind requests that only the node policy sees.
var evidence = []byte("the node policy does not look at this")

// bootstrapAsks is a bootstrap token that asks for a client certificate.
func (w *world) bootstrapAsks() *asked {
	return &asked{join: w.defaults(join{}), pkcs10: w.newPKCS10(), provider: "tpm/v1", data: evidence}
}

// nodeAsks is a node that asks for itself.
func (w *world) nodeAsks() *asked {
	a := w.bootstrapAsks()
	a.username, a.groups = "system:node:"+nodeName, []string{"system:nodes", "system:authenticated"}
	return a
}

// nodeServes is a node that asks for a serving certificate with evidence of its own.
func (w *world) nodeServes() *asked {
	a := w.nodeAsks()
	a.signer, a.usages = csr.SignerServingTPM, csr.Usages(csr.PurposeServing, false)
	a.extensions = append(a.extensions, sanOf(dns("node-1.example.com"), general{7, "\xc0\x00\x02\x01"}))
	return a
}

// kubeletServes is a kubelet's own serving request, which inherits the attestation of
// the client certificate that it comes with.
func (w *world) kubeletServes() *asked {
	a := w.nodeServes()
	a.signer, a.provider, a.data, a.expiration = csr.SignerKubeletServing, "", nil, 86400
	a.extensions = a.extensions[1:]
	a.object = func(r *csr.Request) { r.Spec.Extra = map[string][]string{csr.ExtraCredentialID: {credential}} }
	return a
}

// encode is the request object.
func (a *asked) encode(w *world) *csr.Request {
	r := a.join.object(&csr.Bundle{Request: w.request, Provider: a.provider, Data: a.data}, a.signer, w.answeredAt())
	// The request is put in as text: Bundle.Encode would refuse some.
	block := pemBlock(csr.BlockRequest, change(a.der(), a.raw))
	r.Spec.Request = []byte(strings.Replace(string(r.Spec.Request), pemBlock(csr.BlockRequest, w.request), block, 1))
	if a.object != nil {
		a.object(r)
	}
	return r
}

func (w *world) addRequests(good func() *asked, table []requestAttack) {
	for _, t := range table {
		a := good()
		t.change(a)
		w.add(&vector.Vector{Name: t.name, Class: "request", Level: vector.LevelRequest, Description: t.what, Expect: t.expect,
			Package: vector.PackageCSR, Also: t.also, Retry: t.retry, Environment: t.env, TargetSigner: a.target, Object: a.encode(w)})
	}
}

// object is asked's shorthand for a change of the object.
func object(how func(*csr.Request)) func(*asked) { return func(a *asked) { a.object = how } }

// policies are attacks on the node policy by a bootstrap token or a node.
func (w *world) policies() {
	w.addRequests(w.bootstrapAsks, w.objectAttacks())
	w.addRequests(w.bootstrapAsks, subjectAttacks())
	w.addRequests(w.bootstrapAsks, w.contentAttacks())
	w.addRequests(w.nodeAsks, []requestAttack{
		{name: "node-asks-for-another-node", what: "A node's certificate asks for another node's.", expect: "requester-other-node",
			change: func(a *asked) { a.subject[1] = text(oid.CommonName, "system:node:"+otherNode); a.extensions = nil }},
		{name: "recovery-user-asks-for-another-node", what: "A node's recovery user asks for another node.", expect: "requester-other-node",
			change: func(a *asked) {
				a.username, a.groups = "nodeattest:recovery:"+otherNode, []string{"nodeattest:recovery", "system:authenticated"}
			}},
		{name: "recovery-user-asks-for-a-serving-certificate", what: "A node's recovery user asks for a serving certificate.", expect: "requester-purpose",
			change: func(a *asked) {
				*a = *w.nodeServes()
				a.username, a.groups = "nodeattest:recovery:"+nodeName, []string{"nodeattest:recovery", "system:authenticated"}
			}},
		{name: "node-with-another-group", what: "The node's user is in system:masters too.", expect: "request-groups",
			change: func(a *asked) { a.groups = append(a.groups, "system:masters") }},
	})
}

func (w *world) objectAttacks() []requestAttack {
	deleted := w.now
	condition := func(kind string) func(*asked) {
		return object(func(r *csr.Request) {
			r.Status.Conditions = []csr.Condition{{Type: kind, Status: "True", Reason: "SomebodyElse"}}
		})
	}
	return []requestAttack{
		{name: "request-denied", what: "The request has been denied, which is final.", expect: "request-closed", change: condition(csr.ConditionDenied)},
		{name: "request-failed", what: "The request has failed, which is final.", expect: "request-closed", change: condition(csr.ConditionFailed)},
		{name: "request-signed", what: "The request has a certificate.", expect: "request-closed", change: object(func(r *csr.Request) { r.Status.Certificate = []byte("x") })},
		{name: "request-being-deleted", what: "The request is being deleted.", expect: "request-closed", change: object(func(r *csr.Request) { r.Metadata.DeletionTimestamp = &deleted })},
		{name: "approved-by-somebody-else-without-evidence", what: "Somebody else approved a request that has no evidence.", expect: "attestation-provider",
			change: func(a *asked) { a.provider, a.data = "", nil; condition(csr.ConditionApproved)(a) }},
		{name: "annotations-in-place-of-evidence", what: "The requester set the annotation with an EK and one with a version, and sends no evidence.", expect: "attestation-provider",
			change: func(a *asked) {
				a.provider, a.data = "", nil
				a.object = func(r *csr.Request) {
					r.Metadata.Annotations = map[string]string{"cluster-x-k8s-io/tpm-endorsement-key": "AAAA", "cluster-x-k8s-io/tpm-version": "v1"}
				}
			}},
		{name: "insecure-provider-under-the-tpm-signer", what: "The request is for the TPM signer and its evidence for the insecure provider.", expect: "attestation-provider",
			change: func(a *asked) { a.provider = "insecure/v1" }},
		{name: "signer-insecure", what: "The request is for the insecure signer, which this policy does not serve, with TPM evidence.", expect: "signer-name", retry: true,
			change: func(a *asked) { a.signer = csr.SignerClientInsecure }},
		{name: "signer-unknown", what: "The request is for somebody else's signer, who may answer it.", expect: "signer-name", retry: true,
			change: func(a *asked) { a.signer = "example.com/signer" }},
		{name: "signer-with-the-proposals-spelling", what: "The signer is spelt with the prefix cluster-x-k8s-io/, which the API server refuses.", expect: "signer-name", retry: true,
			change: func(a *asked) { a.signer = "cluster-x-k8s-io/kube-apiserver-client-kubelet-tpm" }},
		{name: "filed-under-a-third-signer", what: "A hello for one signer is filed under a third one.", expect: "signer-name",
			change: func(a *asked) { a.target, a.signer = csr.SignerClientTPM, csr.SignerServingTPM }},
		{name: "username-unknown", what: "The requester is a person.", expect: "request-username", change: func(a *asked) { a.username = "alice" }},
		{name: "username-of-a-service-account", what: "The requester is a service account.", expect: "request-username",
			change: func(a *asked) { a.username = "system:serviceaccount:kube-system:default" }},
		{name: "username-with-a-long-token-id", what: "The bootstrap user's token id has seven characters.", expect: "request-username", change: func(a *asked) { a.username = "system:bootstrap:abc1234" }},
		{name: "groups-without-authenticated", what: "The groups do not contain system:authenticated.", expect: "request-groups", change: func(a *asked) { a.groups = a.groups[:1] }},
		{name: "groups-of-a-node", what: "A bootstrap token is in the nodes' group.", expect: "request-groups", change: func(a *asked) { a.groups = append(a.groups, "system:nodes") }},
		{name: "bootstrap-asks-for-a-serving-certificate", what: "A bootstrap token asks for a serving certificate.", expect: "requester-purpose",
			change: func(a *asked) {
				username, groups := a.username, a.groups
				*a = *w.nodeServes()
				a.username, a.groups = username, groups
			}},
		{name: "bootstrap-asks-for-a-recovery-certificate", what: "A bootstrap token asks for a recovery certificate.", expect: "requester-purpose",
			change: func(a *asked) {
				a.signer, a.usages = csr.SignerRecoveryTPM, csr.Usages(csr.PurposeRecovery, false)
				a.subject = []rdn{text(oid.Organization, "nodeattest:recovery"), text(oid.CommonName, "nodeattest:recovery:"+nodeName)}
			}},
		{name: "usage-server-auth", what: "A client request asks for server auth as well.", expect: "usages", change: func(a *asked) { a.usages = append(a.usages, "server auth") }},
		{name: "usage-cert-sign", what: "The request asks for cert sign.", expect: "usages", change: func(a *asked) { a.usages = append(a.usages, "cert sign") }},
		{name: "usage-missing", what: "The request does not ask for client auth.", expect: "usages", change: func(a *asked) { a.usages = a.usages[:1] }},
		{name: "usage-twice", what: "A usage is asked for twice.", expect: "usages", change: func(a *asked) { a.usages = append(a.usages, a.usages[0]) }},
		{name: "expiration-too-short", what: "The lifetime asked for is under ten minutes.", expect: "expiration", change: func(a *asked) { a.expiration = 599 }},
	}
}

func subjectAttacks() []requestAttack {
	cn := text(oid.CommonName, "system:node:"+nodeName)
	subject := func(s ...rdn) func(*asked) { return func(a *asked) { a.subject = s } }
	o := text(oid.Organization, "system:nodes")
	return []requestAttack{
		{name: "common-name-other", what: "The common name is no node's.", expect: "subject-common-name", change: subject(o, text(oid.CommonName, "admin"))},
		{name: "common-name-missing", what: "There is no common name.", expect: "subject-common-name", change: subject(o)},
		{name: "common-name-without-node", what: "The common name ends behind the prefix.", expect: "subject-common-name", change: subject(o, text(oid.CommonName, "system:node:"))},
		{name: "common-name-in-capitals", what: "The node name has a capital letter.", expect: "subject-common-name", change: subject(o, text(oid.CommonName, "system:node:Node-1"))},
		{name: "common-name-with-nul", what: "A NUL byte stands behind the node name.", expect: "subject-common-name", change: subject(o, text(oid.CommonName, "system:node:"+nodeName+"\x00"))},
		{name: "common-name-duplicate", what: "There are two common names; some readers take the last.", expect: "subject-common-name",
			change: subject(o, cn, text(oid.CommonName, "system:node:"+otherNode))},
		{name: "common-name-in-utf16", what: "The common name is a BMPString.", expect: "subject-common-name", change: subject(o, rdn{{oid.CommonName, 30, "\x00a"}})},
		{name: "organization-other", what: "The organization is system:masters.", expect: "subject-organization", change: subject(text(oid.Organization, "system:masters"), cn)},
		{name: "organization-missing", what: "There is no organization.", expect: "subject-organization", change: subject(cn)},
		{name: "organization-second", what: "There is a second organization, system:masters.", expect: "subject-organization",
			change: subject(o, text(oid.Organization, "system:masters"), cn)},
		{name: "organizational-unit", what: "The subject has an organizational unit.", expect: "subject-extra-rdn", change: subject(o, text(oid.OrganizationalUnit, "system:masters"), cn)},
		{name: "user-uid", what: "The subject has the attribute that the API server reads as a user's UID.", expect: "subject-extra-rdn",
			change: subject(o, cn, text(oid.KubernetesUID, "0"))},
		{name: "multi-valued-rdn", what: "Common name and organization stand in one RDN.", expect: "subject-multi-value",
			change: subject(rdn{o[0], cn[0]})},
	}
}

// contentAttacks are about key, attributes and extensions.
func (w *world) contentAttacks() []requestAttack {
	extend := func(e ...pkix.Extension) func(*asked) {
		return func(a *asked) { a.extensions = append(a.extensions, e...) }
	}
	no := &vector.Environment{Machines: []vector.Machine{}}
	ext := func(value []byte, arcs ...int) pkix.Extension {
		return pkix.Extension{Id: asn1.ObjectIdentifier(arcs), Value: value}
	}
	caTrue := tlv(0x30, []byte{1, 1, 0xff})
	return []requestAttack{
		{name: "ca-extension", what: "The request asks for basicConstraints with CA:TRUE.", expect: "extension-not-allowed", change: extend(ext(caTrue, 2, 5, 29, 19))},
		{name: "key-usage-extension", what: "The request asks for a key usage of its own: keyCertSign.", expect: "extension-not-allowed", change: extend(ext([]byte{3, 2, 2, 4}, 2, 5, 29, 15))},
		{name: "ext-key-usage-extension", what: "The request asks for an extended key usage of its own.", expect: "extension-not-allowed",
			change: extend(ext(tlv(0x30, oidDER(oid.KpServerAuth)), 2, 5, 29, 37))},
		{name: "extension-unknown", what: "The request asks for an extension that nobody knows.", expect: "extension-not-allowed", change: extend(ext([]byte{5, 0}, 2, 999, 2))},
		{name: "flag-without-identifier", what: "The flag extension of the 2018 document stands under an identifier that the policy does not know.", expect: "extension-not-allowed",
			change: extend(ext([]byte{1, 1, 0xff}, 2, 999, 3))},
		{name: "flag-false", what: "The flag extension says FALSE.", expect: "flag", change: extend(ext([]byte{1, 1, 0}, 2, 999, 3)), env: &vector.Environment{Policy: w.flagPolicy()}},
		{name: "flag-missing", what: "The policy asks for the flag extension, and there is none.", expect: "flag", change: func(*asked) {}, env: &vector.Environment{Policy: w.flagPolicy()}},
		{name: "challenge-password", what: "The request has a challengePassword attribute.", expect: "attribute-not-allowed",
			change: func(a *asked) {
				a.attributes = [][]byte{requestAttribute(oid.ChallengePassword, tlv(0x13, []byte("x")))}
			}},
		{name: "attestation-attribute-beside-evidence", what: "The request has the standard's attestation attribute, and evidence behind it.", expect: "attribute-not-allowed",
			change: func(a *asked) {
				a.attributes = [][]byte{requestAttribute(oid.IDAAAttestation, tlv(0x30, []byte{5, 0}))}
			}},
		{name: "san-on-a-client-certificate", what: "A client request asks for a DNS name.", expect: "san-on-client", change: extend(sanOf(dns("node-1.example.com")))},
		{name: "san-empty-on-a-client-certificate", what: "A client request has an empty subjectAltName.", expect: "san-on-client", change: extend(sanOf())},
		{name: "key-ed25519", what: "The request's key is Ed25519.", expect: "key-type",
			change: func(a *asked) { a.pkcs10.key = ed25519.NewKeyFromSeed(derive("Ed25519", 32)) }},
		{name: "key-weak-rsa", what: "The request's key is RSA with 1024 bits.", expect: "key-strength", change: func(a *asked) { a.pkcs10.key = repeatable{w.rsa1024} }},
		{name: "key-weak-curve", what: "The request's key is on P-224.", expect: "key-strength",
			change: func(a *asked) { a.pkcs10.key = repeatable{ecKey(elliptic.P224(), "P-224", nil)} }},
		{name: "key-on-a-curve-not-taken", what: "The request's key is on P-521, which the policy does not take.", expect: "key-strength",
			change: func(a *asked) { a.pkcs10.key = repeatable{ecKey(elliptic.P521(), "P-521", nil)} }},
		{name: "self-signature", what: "The request is not signed with its own key.", expect: "request-signature", change: func(a *asked) { a.corrupt = true }},
		{name: "provider-id-of-another-node", what: "The request claims another machine's provider ID.", expect: "provider-id-mismatch",
			change: func(a *asked) { a.extensions = []pkix.Extension{must(oid.ProviderIDExtension("sim://vectors/node-2"))} }},
		{name: "provider-id-required", what: "The policy asks for a provider ID, and the request claims none.", expect: "provider-id-missing",
			change: func(a *asked) { a.extensions = nil }, env: &vector.Environment{Policy: w.policyWith(func(p *vector.Policy) { p.RequireProviderID = true })}},
		{name: "machine-unknown", what: "There is no machine for this node name.", expect: "machine-unknown", change: func(*asked) {}, env: no},
		{name: "machine-not-ready", what: "The machine is not ready to bootstrap.", expect: "machine-not-ready",
			change: func(a *asked) { a.subject[1] = text(oid.CommonName, "system:node:node-3"); a.extensions = nil }},
		{name: "machine-of-another-node", what: "The machine that is found is recorded under another node's name.", expect: "machine-other-node",
			change: func(a *asked) { a.subject[1] = text(oid.CommonName, "system:node:node-4"); a.extensions = nil }},
		{name: "everything-at-once", what: "Many rules are broken at once, and each is reported.", expect: "usages",
			also: []string{"attestation-provider", "expiration", "extension-not-allowed", "key-strength", "request-closed", "request-groups", "san-on-client", "subject-extra-rdn", "subject-organization"},
			change: func(a *asked) {
				a.usages, a.groups, a.expiration, a.provider, a.data = nil, nil, 1, "", nil
				a.pkcs10.key = repeatable{w.rsa1024}
				a.subject = append(a.subject[1:], text(oid.OrganizationalUnit, "x"))
				extend(ext(caTrue, 2, 5, 29, 19), sanOf(dns("x")))(a)
				a.object = func(r *csr.Request) { r.Status.Certificate = []byte("x") }
			}},
	}
}

func (w *world) policyWith(how func(*vector.Policy)) *vector.Policy {
	p := *w.set.Environment.Policy
	how(&p)
	return &p
}

// flagPolicy knows a flag, and asks for it.
func (w *world) flagPolicy() *vector.Policy {
	return w.policyWith(func(p *vector.Policy) { p.Flag, p.RequireFlag = "2.999.3", true })
}
