package requests

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// apiServer lists requests by their signers, and sends those that come later.
type apiServer struct {
	listed, later map[string][]*certificatesv1.CertificateSigningRequest // by field selector
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/apis/certificates.k8s.io/v1/certificatesigningrequests" {
		http.NotFound(w, r)
		return
	}
	query := r.URL.Query()
	selector := query.Get("fieldSelector")
	w.Header().Set("Content-Type", "application/json")
	kind := metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"}
	encoder := json.NewEncoder(w)
	if query.Get("watch") == "" {
		list := certificatesv1.CertificateSigningRequestList{TypeMeta: metav1.TypeMeta{APIVersion: kind.APIVersion, Kind: kind.Kind + "List"}}
		list.ResourceVersion = "1"
		for _, o := range s.listed[selector] {
			list.Items = append(list.Items, *o)
		}
		_ = encoder.Encode(&list)
		return
	}
	if query.Get("sendInitialEvents") != "" { // as an API server does that does not stream lists
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = encoder.Encode(&metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity})
		return
	}
	for _, o := range s.later[selector] {
		o.TypeMeta = kind
		_ = encoder.Encode(map[string]any{"type": "ADDED", "object": o})
	}
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// TestWatch has a manager look at what is listed and at what comes later, under each signer
// by itself: once at what is decided, again at what failed, and at nothing that is finished.
func TestWatch(t *testing.T) {
	const other = "example.com/other"
	api := &apiServer{
		listed: map[string][]*certificatesv1.CertificateSigningRequest{
			"spec.signerName=" + builtIn: {request("listed", builtIn, ""), request("signed", builtIn, "c"), request("denied", builtIn, "", certificatesv1.CertificateDenied)},
			"spec.signerName=" + ours:    {request("signed", ours, "c")},
		},
		later: map[string][]*certificatesv1.CertificateSigningRequest{
			"spec.signerName=" + ours:  {request("later", ours, "")},
			"spec.signerName=" + other: {request("of others", other, "")},
		},
	}
	web := httptest.NewServer(api)
	defer web.Close()
	scheme := runtime.NewScheme()
	if err := certificatesv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	m, err := manager.New(&rest.Config{Host: web.URL}, manager.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var (
		mu      sync.Mutex
		readers map[string]Reader
		looks   = map[Key]int{}
	)
	want := map[Key]int{{SignerName: builtIn, Name: "listed"}: 2, {SignerName: builtIn, Name: "signed"}: 1, {SignerName: ours, Name: "later"}: 1}
	done := make(chan struct{})
	readers, err = Watch(m, m, []string{builtIn, ours}, Options{Name: "test", Workers: 2}, func(ctx context.Context, key Key) (reconcile.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		var o certificatesv1.CertificateSigningRequest
		if err := readers[key.SignerName].Get(ctx, client.ObjectKey{Name: key.Name}, &o); err != nil || o.Spec.SignerName != key.SignerName {
			t.Errorf("%v: %v, %+v", key, err, &o)
		}
		looks[key]++
		left := 0
		for key, n := range want {
			left += max(0, n-looks[key])
		}
		if left == 0 {
			select {
			case <-done:
			default:
				close(done)
			}
		}
		if looks[key] < want[key] {
			return reconcile.Result{}, errors.New("not yet")
		}
		return reconcile.Result{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	select {
	case <-done:
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Error("not all were looked at")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for key, n := range looks {
		if n != want[key] {
			t.Errorf("%v: %d looks, want %d", key, n, want[key])
		}
	}
	for signer, names := range map[string]map[string]bool{builtIn: {"listed": true, "signed": false, "denied": false}, ours: {"later": true, "signed": false}} {
		for name, waits := range names {
			err := readers[signer].Get(t.Context(), client.ObjectKey{Name: name}, new(certificatesv1.CertificateSigningRequest))
			if (err == nil) != waits {
				t.Errorf("%s of %s: %v, want it to wait: %t", name, signer, err, waits)
			}
		}
	}
}
