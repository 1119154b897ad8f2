package attesttest

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"net"
	"net/url"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
)

func honestRequests() []Attack {
	return []Attack{
		{Name: "honest-client", Class: classHonest, Description: "An honest machine asks for a client certificate.", make: honest(wish{})},
		{Name: "honest-serving", Class: classHonest, Description: "An honest node asks for a serving certificate.", make: honest(wish{serving: true})},
		{Name: "honest-second-machine", Class: classHonest, Description: "Another honest machine asks for a client certificate.", make: honest(wish{machine: MachineTwo, node: NodeName2})},
		{Name: "honest-annotated", Class: classHonest, Description: "An honest request has annotations that mean nothing.", make: honest(wish{object: func(r *csr.Request) {
			r.Metadata.Annotations = map[string]string{csr.AnnotationEndorsementKey: "nobody's", csr.AnnotationVersions: "x/v1"}
		}})},
	}
}

// objectAttacks change what the API server sets, in a request with good evidence.
func objectAttacks() []Attack {
	ask := func(name, what string, change func(*csr.Request)) Attack {
		return asked(ClassRequest, name, what, wish{object: change})
	}
	signer := func(name, what, signer string) Attack {
		return asked(ClassRequest, name, what, wish{signer: signer})
	}
	now := time.Unix(1, 0)
	return []Attack{
		ask("request-denied", "The request has been denied already.", func(r *csr.Request) {
			r.Status.Conditions = []csr.Condition{{Type: csr.ConditionDenied, Status: "True"}}
		}),
		ask("request-approved-and-failed", "Somebody else approved the request, and its signer gave up.", func(r *csr.Request) {
			r.Status.Conditions = []csr.Condition{{Type: csr.ConditionApproved, Status: "True"}, {Type: csr.ConditionFailed, Status: "True"}}
		}),
		ask("request-being-deleted", "The request is being deleted.", func(r *csr.Request) { r.Metadata.DeletionTimestamp = &now }),
		ask("requester-is-a-user", "The requester is no node and has no bootstrap token.", func(r *csr.Request) { r.Spec.Username = "alice" }),
		ask("requester-is-a-master", "The requester is in system:masters as well.", func(r *csr.Request) {
			r.Spec.Groups = append(r.Spec.Groups[:len(r.Spec.Groups):len(r.Spec.Groups)], "system:masters")
		}),
		ask("requester-is-another-node", "Node-2 asks for node-1.", func(r *csr.Request) {
			r.Spec.Username, r.Spec.Groups = csr.NodeUserPrefix+NodeName2, []string{csr.NodesGroup, csr.AuthenticatedGroup}
		}),
		ask("usage-server-auth-added", "A client certificate is to be good for servers too.", func(r *csr.Request) { r.Spec.Usages = append(r.Spec.Usages, "server auth") }),
		ask("usage-cert-sign", "The certificate is to sign others.", func(r *csr.Request) { r.Spec.Usages = []string{"digital signature", "cert sign", "client auth"} }),
		ask("usages-missing", "No usages are asked for.", func(r *csr.Request) { r.Spec.Usages = nil }),
		signer("signer-misspelt", "The signer's name has the prefix cluster-x-k8s-io/.", "cluster-x-k8s-io/kube-apiserver-client-kubelet-tpm"),
		signer("signer-insecure", "Good evidence is filed under the insecure signer.", csr.SignerClientInsecure),
		signer("signer-of-another-provider", "Good evidence is filed under another provider's signer.", "cluster.x-k8s.io/kube-apiserver-client-kubelet-another"),
		signer("signer-of-challenges", "An answer is filed under a signer of hellos, for which nobody signs.", csr.SignerChallengeTPM),
	}
}

// requestAttacks change the PKCS#10 request; the evidence is for the changed one.
func requestAttacks() []Attack {
	ask := func(name, what string, change func(*x509.CertificateRequest)) Attack {
		return asked(ClassRequest, name, what, wish{request: change})
	}
	extra := func(e ...pkix.Extension) func(*x509.CertificateRequest) {
		return func(r *x509.CertificateRequest) { r.ExtraExtensions = append(r.ExtraExtensions, e...) }
	}
	id, _ := oid.ProviderIDExtension(ProviderID)
	other, _ := oid.ProviderIDExtension(ProviderID + "-other")
	critical, empty := id, id
	critical.Critical, empty.Value = true, []byte{0x0c, 0}
	return []Attack{
		ask("common-name-of-no-node", "The common name is that of a user.", func(r *x509.CertificateRequest) { r.Subject.CommonName = "admin" }),
		ask("common-name-without-a-node", "The common name is system:node: and nothing else.", func(r *x509.CertificateRequest) { r.Subject.CommonName = csr.NodeUserPrefix }),
		ask("organization-masters", "The organization is system:masters.", func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"system:masters"} }),
		ask("organization-added", "There is a second organization.", func(r *x509.CertificateRequest) {
			r.Subject.Organization = []string{csr.NodesGroup, "system:masters"}
		}),
		ask("uid-in-the-subject", "The subject holds a user's UID.", func(r *x509.CertificateRequest) {
			r.Subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: "1"}}
		}),
		ask("dns-name-on-client", "A client certificate is to have a DNS name.", func(r *x509.CertificateRequest) { r.DNSNames = []string{"node-1.example.com"} }),
		ask("ip-address-on-client", "A client certificate is to have an address.", func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{{192, 0, 2, 1}} }),
		ask("ca-extension", "The request asks to be a CA.", extra(pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Value: []byte{0x30, 3, 1, 1, 0xff}})),
		ask("unknown-extension", "The request has an extension that nobody knows.", extra(pkix.Extension{Id: asn1.ObjectIdentifier{2, 999, 1}, Value: []byte{5, 0}})),
		ask("provider-id-of-another-machine", "The claimed provider ID is another machine's.", func(r *x509.CertificateRequest) { r.ExtraExtensions = []pkix.Extension{other} }),
		ask("provider-id-twice", "The provider ID is there twice.", extra(id)),
		ask("provider-id-critical", "The provider ID's extension is critical.", func(r *x509.CertificateRequest) { r.ExtraExtensions = []pkix.Extension{critical} }),
		ask("provider-id-empty", "The provider ID is empty.", func(r *x509.CertificateRequest) { r.ExtraExtensions = []pkix.Extension{empty} }),
		asked(ClassRequest, "request-signature-broken", "The request's own signature does not hold: its sender does not have the key.",
			wish{der: func(b []byte) []byte { b[len(b)-1] ^= 1; return b }}),
	}
}

// servingAttacks are about names and addresses.
func servingAttacks() []Attack {
	ask := func(name, what string, change func(*x509.CertificateRequest)) Attack {
		return asked(ClassRequest, name, what, wish{serving: true, request: change})
	}
	return []Attack{
		ask("serving-without-names", "A serving certificate is to have no names.", func(r *x509.CertificateRequest) { r.DNSNames, r.IPAddresses = nil, nil }),
		ask("serving-name-of-another-node", "The names are those of node-2.", func(r *x509.CertificateRequest) { r.DNSNames = []string{"node-2.example.com"} }),
		ask("serving-address-of-another-node", "One address is that of node-2.", func(r *x509.CertificateRequest) { r.IPAddresses = append(r.IPAddresses, net.IP{192, 0, 2, 2}) }),
		ask("serving-name-of-a-service", "One name is that of the API server.", func(r *x509.CertificateRequest) { r.DNSNames = append(r.DNSNames, "kubernetes.default.svc") }),
		ask("serving-wildcard", "One name has a wildcard.", func(r *x509.CertificateRequest) { r.DNSNames = append(r.DNSNames, "*.example.com") }),
		ask("serving-uri", "One name is a URI.", func(r *x509.CertificateRequest) { r.URIs = []*url.URL{{Scheme: "spiffe", Host: "example.com"}} }),
		asked(ClassRequest, "serving-by-bootstrap-token", "Somebody with a bootstrap token asks for a serving certificate.", wish{serving: true, object: func(r *csr.Request) {
			r.Spec.Username, r.Spec.Groups = csr.BootstrapUserPrefix+TokenID, []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}
		}}),
		asked(ClassRequest, "serving-for-another-node", "Node-2 asks for a serving certificate of node-1.", wish{serving: true, object: func(r *csr.Request) {
			r.Spec.Username = csr.NodeUserPrefix + NodeName2
		}}),
	}
}

// pemAttacks change the text around good evidence.
func pemAttacks() []Attack {
	ask := func(name, what string, change func([]byte) []byte) Attack {
		return asked(ClassRequest, name, what, wish{pem: change})
	}
	behind := func(b []byte, marker, insert string) []byte {
		i := bytes.Index(b, []byte(marker)) + len(marker)
		return bytes.Join([][]byte{b[:i], b[i:]}, []byte(insert))
	}
	data := func(b []byte) []byte { return b[bytes.Index(b, []byte("-----BEGIN "+csr.BlockData)):] }
	provider := func(name, what, provider string) Attack {
		return asked(ClassRequest, name, what, wish{wrap: func(b *csr.Bundle) { b.Provider = provider }})
	}
	return []Attack{
		ask("pem-text-before", "A line of text stands before the first block.", func(b []byte) []byte { return append([]byte("text\n"), b...) }),
		ask("pem-text-between", "A line of text stands between two blocks.", func(b []byte) []byte { return behind(b, "-----END "+csr.BlockRequest+"-----\n", "text\n") }),
		ask("pem-text-behind", "A line of text stands behind the last block.", func(b []byte) []byte { return append(b, "text\n"...) }),
		ask("pem-header", "A block has a header.", func(b []byte) []byte {
			return behind(b, "-----BEGIN "+csr.BlockData+"-----\n", "Proc-Type: 4\n\n")
		}),
		ask("pem-crlf", "Lines end with CR and LF.", func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n")) }),
		ask("pem-no-last-line-end", "The last line has no end.", func(b []byte) []byte { return b[:len(b)-1] }),
		ask("pem-data-twice", "The evidence is there twice.", func(b []byte) []byte { return append(b[:len(b):len(b)], data(b)...) }),
		ask("pem-unknown-block", "There is a block that nobody knows.", func(b []byte) []byte {
			return append(b, "-----BEGIN VM IDENTITY-----\ne30=\n-----END VM IDENTITY-----\n"...)
		}),
		ask("pem-order", "The evidence stands before its provider's name.", func(b []byte) []byte {
			i, j := bytes.Index(b, []byte("-----BEGIN "+csr.BlockProvider)), bytes.Index(b, []byte("-----BEGIN "+csr.BlockData))
			return bytes.Join([][]byte{b[:i], b[j:], b[i:j]}, nil)
		}),
		provider("provider-insecure", "The evidence says that it is the insecure provider's.", "insecure/v1"),
		provider("provider-another", "The evidence says that it is another provider's.", "another/v1"),
		provider("provider-version-unknown", "The evidence has a version that nobody writes.", "tpm/v999999999"),
		asked(ClassRequest, "provider-version-annotated", "The evidence has a version that nobody writes, and an annotation says that it is supported.", wish{
			wrap: func(b *csr.Bundle) { b.Provider = "tpm/v999999999" },
			object: func(r *csr.Request) {
				r.Metadata.Annotations = map[string]string{csr.AnnotationVersions: "tpm/v999999999"}
			}}),
		asked(ClassRequest, "no-evidence", "There is no evidence.", wish{wrap: func(b *csr.Bundle) { b.Provider, b.Data = "", nil }}),
		asked(ClassRequest, "evidence-of-one-byte", "The evidence is one zero byte.", wish{wrap: func(b *csr.Bundle) { b.Data = []byte{0} }}),
	}
}
