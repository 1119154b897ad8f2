package audit_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/nodeattest/nodeattest/claims/audit"
)

const (
	token       = "JTI=3e61a579-7bca-4b01-b07b-41db21f511e0"
	certificate = "X509SHA256=28b3f3c801b8637374f88de01cdf5280812f909c78f06ecd298c990cb4522a6b"
)

// exampleLog is what kube-apiserver 1.36.3 writes about a TokenRequest of a kubelet, and a use of the token.
func exampleLog() audit.Log {
	const text = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"7fa091a5-c7c8-42f2-8eb0-e84e367b539f","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/shop/serviceaccounts/cart/token","verb":"create","user":{"username":"system:node:node-1","groups":["system:nodes","system:authenticated"],"extra":{"authentication.kubernetes.io/credential-id":["` + certificate + `"]}},"sourceIPs":["10.0.0.1"],"userAgent":"kubelet/v1.36.3","objectRef":{"resource":"serviceaccounts","namespace":"shop","name":"cart","apiVersion":"v1","subresource":"token"},"responseStatus":{"metadata":{},"code":201},"requestReceivedTimestamp":"2026-11-27T13:18:44.274492Z","stageTimestamp":"2026-11-27T13:18:44.277279Z","annotations":{"authentication.kubernetes.io/issued-credential-id":"` + token + `","authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":""}}
{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"29db7053-a6b2-4e40-b964-ccb2beb37951","stage":"ResponseComplete","requestURI":"/api/v1/secrets","verb":"list","user":{"username":"system:serviceaccount:shop:cart","groups":["system:serviceaccounts"],"extra":{"authentication.kubernetes.io/credential-id":["` + token + `"]}},"sourceIPs":["203.0.113.9"],"userAgent":"curl/8.5","objectRef":{"resource":"secrets","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":403},"requestReceivedTimestamp":"2026-11-27T13:20:01.718938Z","stageTimestamp":"2026-11-27T13:20:01.719398Z"}
{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"5839360c-d0f3-470d-a22d-a31d213ba9ec","stage":"ResponseComplete","requestURI":"/apis/certificates.k8s.io/v1/certificatesigningrequests/csr-x7k2p/approval","verb":"update","user":{"username":"system:serviceaccount:nodeattest-system:node-attestation-controller"},"objectRef":{"resource":"certificatesigningrequests","name":"csr-x7k2p","uid":"0d8ad3a4-0b2a-4f02-8a01-06f6bd0a5a5f","apiGroup":"certificates.k8s.io","apiVersion":"v1","subresource":"approval"},"responseStatus":{"metadata":{},"code":200},"stageTimestamp":"2026-11-27T12:00:05.100000Z"}
`
	return audit.Log{Name: "audit.log", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
}

// Whose token made these requests? It was requested with the certificate of a node.
func ExampleTrace() {
	chain, err := audit.Trace(context.Background(), token, exampleLog())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, link := range chain.Links {
		fmt.Println(link.CredentialID)
		fmt.Println("  used by", link.Uses.Users, "from", link.Uses.SourceIPs)
		for _, event := range link.Issued {
			fmt.Println("  requested by", event.Username, "at", event.Time)
		}
	}
	fmt.Println(chain.Node())
	// Output:
	// JTI=3e61a579-7bca-4b01-b07b-41db21f511e0
	//   used by [system:serviceaccount:shop:cart] from [203.0.113.9]
	//   requested by system:node:node-1 at 2026-11-27 13:18:44.277279 +0000 UTC
	// X509SHA256=28b3f3c801b8637374f88de01cdf5280812f909c78f06ecd298c990cb4522a6b
	//   used by [system:node:node-1] from [10.0.0.1]
	// node-1 <nil>
}

// A log that does not go back to the token's issue says so.
func ExampleChain_Node() {
	chain, err := audit.Trace(context.Background(), "JTI=5c8b11b5-cc17-4a0c-8c6b-3f2f1ee51c5b", exampleLog())
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = chain.Node()
	fmt.Println(err)
	// Output:
	// audit-no-event: got no TokenRequest that issued JTI=5c8b11b5-cc17-4a0c-8c6b-3f2f1ee51c5b, want its event in the logs, which have 3 events from 2026-11-27T12:00:05Z to 2026-11-27T13:20:01Z
}

// A Log of a file. The record of the node's certificate has the UID of the certificate request.
func ExampleChanges() {
	file := audit.Log{Name: "audit.log", Open: func() (io.ReadCloser, error) { return os.Open("audit.log") }}
	_, err := audit.Changes(context.Background(), "0d8ad3a4-0b2a-4f02-8a01-06f6bd0a5a5f", file)
	fmt.Println(err)

	events, err := audit.Changes(context.Background(), "0d8ad3a4-0b2a-4f02-8a01-06f6bd0a5a5f", exampleLog())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, event := range events {
		fmt.Println(event.Verb, event.Resource, event.Name, "by", event.Username)
	}
	// Output:
	// audit log audit.log: open audit.log: no such file or directory
	// update certificatesigningrequests/approval csr-x7k2p by system:serviceaccount:nodeattest-system:node-attestation-controller
}
