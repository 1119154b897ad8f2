package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestPodToken: the request names the pod by its UID, and the one audience. test/kube has the whole
// program run against kube-apiserver.
func TestPodToken(t *testing.T) {
	var asked authenticationv1.TokenRequest
	reply := func(w http.ResponseWriter, object any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(object)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/shop/pods/cart-0", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "cart-0", UID: "uid-1"}, Spec: corev1.PodSpec{ServiceAccountName: "cart"}})
	})
	mux.HandleFunc("POST /api/v1/namespaces/shop/serviceaccounts/cart/token", func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		issued := asked.DeepCopy()
		issued.TypeMeta, issued.Status.Token = metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"}, "a token"
		reply(w, issued)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	token, err := podToken(t.Context(), api, "shop", "cart-0", "https://vault.example")
	if err != nil || token != "a token" {
		t.Fatalf("got %q, %v", token, err)
	}
	s := asked.Spec
	if len(s.Audiences) != 1 || s.Audiences[0] != "https://vault.example" || *s.ExpirationSeconds != 600 || s.BoundObjectRef.UID != "uid-1" || s.BoundObjectRef.Name != "cart-0" || s.BoundObjectRef.Kind != "Pod" {
		t.Errorf("asked for %+v", s)
	}
	if _, err := podToken(t.Context(), api, "shop", "gone", "https://vault.example"); err == nil {
		t.Error("a token of no pod")
	}
}

// TestCall: a service that cannot decide is called again; a refusal is the error.
func TestCall(t *testing.T) {
	statuses := []int{http.StatusServiceUnavailable, http.StatusOK, http.StatusUnauthorized}
	calls := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer token" {
			t.Error("no token")
		}
		w.WriteHeader(statuses[calls])
		_, _ = w.Write([]byte("refused: node-gone"))
		calls++
	}))
	defer server.Close()
	if _, err := call(t.Context(), server.Client(), server.URL, "token"); err != nil || calls != 2 {
		t.Errorf("%d calls, %v", calls, err)
	}
	if _, err := call(t.Context(), server.Client(), server.URL, "token"); err == nil || !strings.Contains(err.Error(), "401 Unauthorized: refused: node-gone") {
		t.Errorf("got %v", err)
	}
}

// TestCallKeepsTheToken: neither a redirect to the same host, where net/http would send the header again, nor a
// URL without TLS gets the token.
func TestCallKeepsTheToken(t *testing.T) {
	got := ""
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("Authorization") }))
	defer other.Close()
	server := httptest.NewTLSServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	for _, url := range []string{server.URL, other.URL} {
		if _, err := call(t.Context(), server.Client(), url, "token"); err == nil || got != "" {
			t.Errorf("%s: got %v, sent %q", url, err, got)
		}
	}
}
