package boundtokens_test

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/boundtokens"
)

// A fakeAPI is an API server that has an answer for each path, and "not found" for all others.
type fakeAPI struct {
	*httptest.Server
	mu      sync.Mutex
	answers map[string]http.HandlerFunc
	asked   []string // method, path and Accept of each request
	bodies  []string
}

func newFakeAPI() *fakeAPI {
	f := &fakeAPI{answers: map[string]http.HandlerFunc{}}
	f.Server = httptest.NewTLSServer(f)
	return f
}

// config is a connection to it.
func (f *fakeAPI) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
	return &rest.Config{Host: f.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	f.mu.Lock()
	f.asked, f.bodies = append(f.asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Accept")), append(f.bodies, string(body))
	answer := f.answers[r.URL.Path]
	f.mu.Unlock()
	if answer == nil {
		answer = status(http.StatusNotFound, metav1.StatusReasonNotFound)
	}
	answer(w, r)
}

// put has the path answered with the object.
func (f *fakeAPI) put(path string, object any) { f.set(path, send(http.StatusOK, object)) }

func (f *fakeAPI) set(path string, answer http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[path] = answer
}

// send answers with an object, or with text.
func send(code int, object any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		if text, ok := object.(string); ok {
			_, _ = io.WriteString(w, text)
			return
		}
		_ = json.NewEncoder(w).Encode(object)
	}
}

// status answers as an API server does in place of an object.
func status(code int, reason metav1.StatusReason) http.HandlerFunc {
	return send(code, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(code), Message: "the reason"})
}

const (
	recordPath, nodePath = "/apis/nodeattest.github.io/v1alpha1/attestednodes/node-a", "/api/v1/nodes/node-a"
	credential, otherOne = "X509SHA256=aa", "X509SHA256=bb"
	reviewPath           = "/apis/authentication.k8s.io/v1/tokenreviews"
)

// attestedNode is the record of node-a, with one client certificate.
func attestedNode() *v1alpha1.AttestedNode {
	end := metav1.NewTime(time.Now().Add(time.Hour))
	return &v1alpha1.AttestedNode{
		TypeMeta:   metav1.TypeMeta{Kind: "AttestedNode", APIVersion: "nodeattest.github.io/v1alpha1"},
		ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: "record-uid"},
		Spec: v1alpha1.AttestedNodeSpec{
			Scope: "ek P-256", Machine: "ek:sha256:01", MachineUID: "machine-uid", ProviderID: "sim://a", State: v1alpha1.NodeBound, LastEnd: &end,
			Certificates: []v1alpha1.IssuedCertificate{{
				CredentialID: credential, SignerName: csr.SignerClientTPM, Machine: "ek:sha256:01", MachineUID: "machine-uid", NodeUID: "node-uid",
				ProviderID: "sim://a", RequestUID: "request-uid", SPKISHA256: strings.Repeat("01", 32), NotAfter: end,
			}},
		},
	}
}

// newCluster returns a fake API server and its client.
func newCluster(t testing.TB, opts boundtokens.Options) (*fakeAPI, *boundtokens.Cluster) {
	t.Helper()
	api := newFakeAPI()
	t.Cleanup(api.Close)
	cluster, err := boundtokens.New(api.config(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return api, cluster
}

var _ claims.LiveObjects = (*boundtokens.Cluster)(nil)
