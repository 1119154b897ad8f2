package join_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/join"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// server is a control plane without Kubernetes. Who asks is what it has authenticated itself, and
// nothing of it comes from the body.
type server struct {
	plane *join.Plane
	user  func(*http.Request) (csr.User, bool)
}

func (s server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	by, ok := s.user(r)
	if !ok {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	var spec csr.Spec
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 2<<20)).Decode(&spec); err != nil {
		http.Error(w, "not a request", http.StatusBadRequest)
		return
	}
	request := csr.Filed(&spec, by, time.Now())
	reply := s.plane.Handle(r.Context(), request)
	if reply.Decision.Verdict == csr.VerdictRetry {
		http.Error(w, "try again", http.StatusServiceUnavailable) // the reason is reply.Err, for the log
		return
	}
	_ = json.NewEncoder(w).Encode(reply.Status(request))
}

// fileAt carries a node's requests to such a server.
func fileAt(url, token string) join.File {
	return func(ctx context.Context, spec *csr.Spec) (*csr.Request, error) {
		body, err := json.Marshal(spec)
		if err != nil {
			return nil, err
		}
		post, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		post.Header.Set("Authorization", "Bearer "+token)
		reply, err := http.DefaultClient.Do(post) // in production over TLS, with the server's CA
		if err != nil {
			return nil, err
		}
		defer func() { _ = reply.Body.Close() }()
		if reply.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("the server says %s", reply.Status)
		}
		decided := csr.Filed(spec, csr.User{}, time.Now())
		return decided, json.NewDecoder(http.MaxBytesReader(nil, reply.Body, 2<<20)).Decode(&decided.Status)
	}
}

// A control plane behind a server of one's own, and a node that asks it.
func ExamplePlane_Handle() {
	cloud := must(tpmsim.NewCA(tpmsim.CAOptions{})) // stands in for the cloud and its machine
	machine := must(tpmsim.Open(tpmsim.Options{CA: cloud, Instance: tpmsim.DefaultInstance()}))
	defer func() { _ = machine.Close() }()
	caCert, caKey := clusterCA()
	plane := must(join.NewPlane(join.Config{
		Chain: []*x509.Certificate{caCert}, Key: caKey,
		Kinds:   []attest.Kind{must(tpm.TrustAKs([]*x509.Certificate{cloud.Root()}, tpmcert.ProfileGoogle()))},
		Members: must(membership.ParseStaticList([]byte("gce:tpmsim-project/4242424242424242424 node-1\n"))),
	}))
	users := func(r *http.Request) (csr.User, bool) {
		return bootstrapper, r.Header.Get("Authorization") == "Bearer a token" // in production package bootstraptoken
	}
	web := httptest.NewServer(server{plane, users})
	defer web.Close()

	node := join.Node{Name: "node-1", ClusterID: must(attest.ClusterID(caCert)), Key: newKey(),
		Prover: must(tpm.NewProver(machine, tpm.GCERSA(), tpm.ProverOptions{Intermediates: [][]byte{cloud.AKIntermediate().Raw}}))}
	certificate, err := node.Join(context.Background(), fileAt(web.URL, "a token"))
	fmt.Printf("%.27s, %v\n", certificate, err)
	_, err = node.Join(context.Background(), fileAt(web.URL, "another token"))
	fmt.Println(err)
	// Output:
	// -----BEGIN CERTIFICATE-----, <nil>
	// the server says 401 Unauthorized
}
