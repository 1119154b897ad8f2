package controller

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// oneRequest is an API server with one pending request, which sends the writes that it gets.
type oneRequest struct {
	name    string
	written chan *certificatesv1.CertificateSigningRequest
}

func (s *oneRequest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	w.Header().Set("Content-Type", "application/json")
	kind := metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"}
	encode := json.NewEncoder(w).Encode
	switch query := r.URL.Query(); {
	case r.Method == http.MethodPut && r.URL.Path == requests+"/"+s.name+"/approval":
		o := new(certificatesv1.CertificateSigningRequest)
		if err := json.NewDecoder(r.Body).Decode(o); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.written <- o
		_ = encode(o)
	case r.URL.Path != requests:
		w.WriteHeader(http.StatusNotFound)
		_ = encode(&metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
	case query.Get("sendInitialEvents") != "": // as an API server does that does not stream lists
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = encode(&metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity})
	case query.Get("watch") != "":
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	default:
		list := certificatesv1.CertificateSigningRequestList{TypeMeta: metav1.TypeMeta{APIVersion: kind.APIVersion, Kind: kind.Kind + "List"}}
		list.ResourceVersion = "1"
		if query.Get("fieldSelector") == "spec.signerName="+builtIn {
			o := certificatesv1.CertificateSigningRequest{TypeMeta: kind}
			o.Name, o.UID, o.ResourceVersion, o.Spec.SignerName = s.name, "uid", "1", builtIn
			list.Items = append(list.Items, o)
		}
		_ = encode(&list)
	}
}

// TestTwoClusters has two controllers in one process decide the requests of two clusters, and
// count them side by side. A second one of the same name is refused.
func TestTwoClusters(t *testing.T) {
	scheme := runtime.NewScheme()
	testkit.MustDo(certificatesv1.AddToScheme(scheme))
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), meta.RESTScopeRoot)
	mappers := func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil }
	serve := func(name string) (*oneRequest, *rest.Config) {
		api := &oneRequest{name, make(chan *certificatesv1.CertificateSigningRequest, 8)}
		web := httptest.NewServer(api)
		t.Cleanup(web.Close)
		return api, &rest.Config{Host: web.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	}
	first, config := serve("first")
	m := testkit.Must(manager.New(config, manager.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}, MapperProvider: mappers}))
	second, config := serve("second")
	other := testkit.Must(cluster.New(config, func(o *cluster.Options) { o.Scheme, o.MapperProvider = scheme, mappers }))
	testkit.MustDo(m.Add(other))
	counters := prometheus.NewRegistry()
	for _, c := range []Config{{Metrics: counters}, {Name: "of-the-second", Cluster: other, Metrics: counters}} {
		c.Providers = &fakeProviders{signers: []string{builtIn}, verify: approve}
		r, err := New(c)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		if err := r.SetupWithManager(m); err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
	}
	if _, err := New(Config{Providers: &fakeProviders{signers: []string{builtIn}}, Metrics: counters}); err == nil {
		t.Error("two of one name count in one place")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	for _, api := range []*oneRequest{first, second} {
		select {
		case o := <-api.written:
			if o.Name != api.name || len(o.Status.Conditions) != 1 || o.Status.Conditions[0].Type != certificatesv1.CertificateApproved {
				t.Errorf("%s: %+v was written", api.name, o)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s: no decision", api.name)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	families := testkit.Must(counters.Gather())
	var names []string
	for _, f := range families {
		for _, metric := range f.Metric {
			for _, l := range metric.Label {
				if f.GetName() == "nodeattest_decisions_total" && l.GetName() == "controller" {
					names = append(names, l.GetValue())
				}
			}
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{DefaultName, "of-the-second"}) {
		t.Errorf("decisions of %q were counted, want one of each controller", names)
	}
}
