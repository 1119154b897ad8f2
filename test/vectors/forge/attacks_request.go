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

// Asked is a request object before it is encoded. A vector changes one thing in a good one.
type Asked struct {
	Join
	*PKCS10
	w      *Bench
	bundle func(*csr.Bundle)   // changes provider and data
	object func(*csr.Request)  // changes the object last
	raw    func([]byte) []byte // changes the PKCS#10 request in its block last
	Target string              // the signer that a hello states, "" for none
}

// RequestAttack is one change to a good request.
type RequestAttack = Attack[func(*Asked)]

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

// Encode returns the request object, with evidence that only the node policy sees.
func (a *Asked) Encode() *csr.Request {
	return a.Filed(&csr.Bundle{Provider: "tpm/v1", Data: []byte("the node policy does not look at this")})
}

// Filed returns the request object with this evidence, unless the attack is on the evidence.
func (a *Asked) Filed(b *csr.Bundle) *csr.Request {
	w, whole := a.w, csr.Bundle{Request: a.w.Request, Provider: b.Provider, Data: b.Data}
	if a.bundle != nil {
		a.bundle(&whole)
	}
	r := a.Join.Object(&whole, a.Signer, w.AnsweredAt())
	// The request is inserted as text: Bundle.Encode would refuse some.
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

// ByRecoveryUser makes a node's recovery user the requester.
func (a *Asked) ByRecoveryUser(node string) {
	a.Username, a.Groups = "nodeattest:recovery:"+node, []string{"nodeattest:recovery", "system:authenticated"}
}

// As asks for another node, which has no provider ID.
func (a *Asked) As(node string) {
	a.Subject[1], a.Extensions = Text(oid.CommonName, "system:node:"+node), nil
}

// OnObject changes the object last.
func (a *Asked) OnObject(how func(*csr.Request)) { a.object = how }

// OnBundle changes request, provider and data before they are encoded.
func (a *Asked) OnBundle(how func(*csr.Bundle)) { a.bundle = how }

// plain omits the evidence.
func plain(b *csr.Bundle) { b.Provider, b.Data = "", nil }

// RequestTable is a good request and the attacks that change it.
type RequestTable struct {
	Good    func() *Asked
	Attacks []RequestAttack
}

// RequestTables are the attacks on requests, except those on what a kubelet files without
// evidence.
func (w *Bench) RequestTables() []RequestTable {
	return []RequestTable{
		{w.BootstrapAsks, slices.Concat(infoAttacks(), w.keyEncodings(), w.extensionEncodings(), w.objectAttacks(), subjectAttacks(), w.contentAttacks())},
		{w.NodeAsks, w.nodeAttacks()},
		{w.NodeServes, servingAttacks()},
	}
}

// object is Asked's shorthand for a change to the object.
func object(how func(*csr.Request)) func(*Asked) { return func(a *Asked) { a.object = how } }

func (w *Bench) objectAttacks() []RequestAttack {
	deleted := w.Now
	condition := func(kind string) func(*Asked) {
		return object(func(r *csr.Request) {
			r.Status.Conditions = []csr.Condition{{Type: kind, Status: "True", Reason: "SomebodyElse"}}
		})
	}
	return listed("request objects", map[string]func(*Asked){
		"request-denied":        condition(csr.ConditionDenied),
		"request-failed":        condition(csr.ConditionFailed),
		"request-signed":        object(func(r *csr.Request) { r.Status.Certificate = []byte("x") }),
		"request-being-deleted": object(func(r *csr.Request) { r.Metadata.DeletionTimestamp = &deleted }),
		"approved-by-somebody-else-without-evidence": func(a *Asked) { a.bundle = plain; condition(csr.ConditionApproved)(a) },
		"annotations-in-place-of-evidence": func(a *Asked) {
			a.bundle = plain
			a.object = func(r *csr.Request) {
				r.Metadata.Annotations = map[string]string{"cluster-x-k8s-io/tpm-endorsement-key": "AAAA", "cluster-x-k8s-io/tpm-version": "v1"}
			}
		},
		"insecure-provider-under-the-tpm-signer": func(a *Asked) { a.bundle = func(b *csr.Bundle) { b.Provider = "insecure/v1" } },
		"signer-insecure":                        func(a *Asked) { a.Signer = csr.SignerClientInsecure },
		"signer-unknown":                         func(a *Asked) { a.Signer = "example.com/signer" },
		"signer-with-the-proposals-spelling":     func(a *Asked) { a.Signer = "cluster-x-k8s-io/kube-apiserver-client-kubelet-tpm" },
		"username-unknown":                       func(a *Asked) { a.Username = "alice" },
		"username-of-a-service-account":          func(a *Asked) { a.Username = "system:serviceaccount:kube-system:default" },
		"username-with-a-long-token-id":          func(a *Asked) { a.Username = "system:bootstrap:abc1234" },
		"groups-without-authenticated":           func(a *Asked) { a.Groups = a.Groups[:1] },
		"groups-of-a-node":                       func(a *Asked) { a.Groups = append(a.Groups, "system:nodes") },
		"token-of-another-node": func(a *Asked) {
			a.Groups = append(a.Groups, csr.TokenGroup(OtherNode))
		},
		"token-of-two-nodes": func(a *Asked) {
			a.Groups = append(a.Groups, csr.TokenGroup(NodeName), csr.TokenGroup(OtherNode))
		},
		"bootstrap-asks-for-a-serving-certificate": func(a *Asked) {
			username, groups := a.Username, a.Groups
			*a = *w.NodeServes()
			a.Username, a.Groups = username, groups
		},
		"bootstrap-asks-for-a-recovery-certificate": (*Asked).ForRecovery,
		"usage-server-auth":                         func(a *Asked) { a.Usages = append(a.Usages, "server auth") },
		"usage-cert-sign":                           func(a *Asked) { a.Usages = append(a.Usages, "cert sign") },
		"usage-missing":                             func(a *Asked) { a.Usages = a.Usages[:1] },
		"usage-twice":                               func(a *Asked) { a.Usages = append(a.Usages, a.Usages[0]) },
		"expiration-too-short":                      func(a *Asked) { a.Expiration = 599 },
	})
}

func subjectAttacks() []RequestAttack {
	cn := Text(oid.CommonName, "system:node:"+NodeName)
	subject := func(s ...Rdn) func(*Asked) { return func(a *Asked) { a.Subject = s } }
	o := Text(oid.Organization, "system:nodes")
	return listed("subjects", map[string]func(*Asked){
		"common-name-other":        subject(o, Text(oid.CommonName, "admin")),
		"common-name-missing":      subject(o),
		"common-name-without-node": subject(o, Text(oid.CommonName, "system:node:")),
		"common-name-in-capitals":  subject(o, Text(oid.CommonName, "system:node:Node-1")),
		"common-name-with-nul":     subject(o, Text(oid.CommonName, "system:node:"+NodeName+"\x00")),
		"common-name-duplicate":    subject(o, cn, Text(oid.CommonName, "system:node:"+OtherNode)),
		"common-name-in-utf16":     subject(o, Rdn{{oid.CommonName, 30, "\x00a"}}),
		"organization-other":       subject(Text(oid.Organization, "system:masters"), cn),
		"organization-missing":     subject(cn),
		"organization-second":      subject(o, Text(oid.Organization, "system:masters"), cn),
		"organizational-unit":      subject(o, Text(oid.OrganizationalUnit, "system:masters"), cn),
		"user-uid":                 subject(o, cn, Text(oid.KubernetesUID, "0")),
		"multi-valued-rdn":         subject(Rdn{o[0], cn[0]}),
	})
}

// contentAttacks concern key, attributes and extensions.
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
	return listed("contents of requests", map[string]func(*Asked){
		"ca-extension":                          extend(ext(caTrue, 2, 5, 29, 19)),
		"key-usage-extension":                   extend(ext([]byte{3, 2, 2, 4}, 2, 5, 29, 15)),
		"ext-key-usage-extension":               extend(ext(TLV(0x30, oidDER(oid.KpServerAuth)), 2, 5, 29, 37)),
		"extension-unknown":                     extend(ext([]byte{5, 0}, 2, 999, 2)),
		"flag-without-identifier":               extend(ext([]byte{1, 1, 0xff}, 2, 999, 3)),
		"challenge-password":                    attribute(oid.ChallengePassword, TLV(0x13, []byte("x"))),
		"attestation-attribute-beside-evidence": attribute(oid.IDAAAttestation, TLV(0x30, []byte{5, 0})),
		"san-on-a-client-certificate":           extend(SANOf(dns("node-1.example.com"))),
		"san-empty-on-a-client-certificate":     extend(SANOf()),
		"key-ed25519":                           keyed(ed25519.NewKeyFromSeed(Derive("Ed25519", 32))),
		"key-weak-curve":                        keyed(ECKey(elliptic.P224(), "P-224", nil)),
		"key-on-a-curve-not-taken":              keyed(ECKey(elliptic.P521(), "P-521", nil)),
		"self-signature":                        func(a *Asked) { a.Corrupt = true },
		"provider-id-of-another-node":           func(a *Asked) { a.Extensions = []pkix.Extension{Must(oid.ProviderIDExtension("sim://vectors/node-2"))} },
		"machine-not-ready":                     as("node-3"),
		"machine-of-another-node":               as("node-4"),
	})
}

// nodeAttacks are changes to what a node asks for.
func (w *Bench) nodeAttacks() []RequestAttack {
	return listed("nodes' requests", map[string]func(*Asked){
		"node-asks-for-another-node":                   as(OtherNode),
		"recovery-user-asks-for-another-node":          func(a *Asked) { a.ByRecoveryUser(OtherNode) },
		"recovery-user-asks-for-a-serving-certificate": func(a *Asked) { *a = *w.NodeServes(); a.ByRecoveryUser(NodeName) },
		"node-with-another-group":                      func(a *Asked) { a.Groups = append(a.Groups, "system:masters") },
	})
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
	return listed("requests for serving", map[string]func(*Asked){
		"san-missing":                 func(a *Asked) { a.Extensions = a.Extensions[:1] },
		"san-of-another-node":         san(own, dns("node-2.example.com")),
		"san-address-of-another-node": san(own, ip("\xc0\x00\x02\x02")),
		"san-of-a-service":            san(own, dns("kubernetes.default.svc")),
		"san-of-the-apiserver":        san(own, dns("api.example.com")),
		"san-address-of-a-service":    san(own, ip("\x0a\x60\x00\x01")),
		"san-loopback":                san(own, ip("\x7f\x00\x00\x01")),
		"san-wildcard":                san(own, dns("*.example.com")),
		"san-in-capitals":             san(own, dns("NODE-2.example.com")),
		"san-like-an-address":         san(own, dns("192.0.2.1")),
		"san-email":                   san(own, general{1, "root@example.com"}),
		"san-uri":                     san(own, general{6, "spiffe://example.com/x"}),
		"san-registered-id":           san(own, general{8, "\x2a\x03\x04"}),
		"san-too-many":                san(many...),
		"serving-with-client-usages":  func(a *Asked) { a.Usages = csr.Usages(csr.PurposeClient, false) },
	})
}
