package clusterapi

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodeattest/nodeattest/csr"
)

var infrastructure = schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1", Kind: "FakeCluster"}

// newComparison makes the comparison of a Cluster whose infrastructure has a status. err is the API
// server's answer to reads.
func newComparison(t *testing.T, version string, status fields, err *error) (*signerComparison, *unstructured.Unstructured) {
	t.Helper()
	of := objectOf(version, coreGroup, "Cluster", work, fields{})
	ref := fields{"kind": infrastructure.Kind, "name": work}
	if version == "v1beta1" {
		ref["apiVersion"], ref["namespace"] = infrastructure.Group+"/v0", namespace
	} else {
		ref["apiGroup"] = infrastructure.Group
	}
	set(t, of, ref, "spec", "infrastructureRef")
	state := objectOf(infrastructure.Version, infrastructure.Group, infrastructure.Kind, work, fields{})
	state.Object["status"] = status
	i := newInventory(t, version, recorded(t, ""), []client.Object{of}, nil)
	i.live = fake.NewClientBuilder().WithObjects(state).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if *err != nil {
				return *err
			}
			return c.Get(ctx, key, o, options...)
		},
	}).Build()
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{infrastructure.GroupVersion()})
	mapper.Add(infrastructure, meta.RESTScopeNamespace)
	i.mapper, i.signers = mapper, []string{csr.SignerKubeAPIServerClientKubelet, csr.SignerKubeletServing}
	return &signerComparison{Inventory: i, events: events.NewFakeRecorder(9)}, state
}

// event is the Event that was recorded last, or "".
func (s *signerComparison) event() string {
	select {
	case text := <-s.events.(*events.FakeRecorder).Events:
		return text
	default:
		return ""
	}
}

// TestSigners compares what an infrastructure provider states with the signers that are served.
func TestSigners(t *testing.T) {
	const client, serving = "kubeletClientCertificateSigner", "kubeletServingCertificateSigner"
	for name, row := range map[string]struct {
		status fields
		want   []string // in the Event; nil: no Event
	}{
		"both are served":      {fields{client: csr.SignerKubeAPIServerClientKubelet, serving: csr.SignerKubeletServing}, nil},
		"none is stated":       {fields{"ready": true}, nil},
		"no status":            {nil, nil},
		"one is stated":        {fields{client: csr.SignerKubeAPIServerClientKubelet}, nil},
		"another client":       {fields{client: csr.SignerClientTPM, serving: csr.SignerKubeletServing}, []string{client, csr.SignerClientTPM, "FakeCluster work"}},
		"another for serving":  {fields{serving: csr.SignerServingTPM}, []string{serving, csr.SignerServingTPM}},
		"two others":           {fields{client: csr.SignerClientTPM, serving: csr.SignerServingTPM}, []string{csr.SignerClientTPM + `" and status.` + serving}},
		"they are swapped":     {fields{client: csr.SignerKubeletServing}, []string{client, csr.SignerKubeletServing}},
		"a name of no signer":  {fields{client: "x\n"}, []string{`"x\n"`}},
		"a name with no quote": {fields{client: "%s%d"}, []string{"%s%d"}},
	} {
		for _, version := range versions {
			t.Run(name+"/"+version, func(t *testing.T) {
				var none error
				s, _ := newComparison(t, version, row.status, &none)
				s.look(t.Context())
				got := s.event()
				if (got == "") != (row.want == nil) {
					t.Errorf("got the Event %q, want %q", got, row.want)
				}
				for _, part := range row.want {
					if !strings.Contains(got, part) || !strings.HasPrefix(got, "Warning SignerNamesDiffer ") {
						t.Errorf("got the Event %q, want %q in it", got, part)
					}
				}
			})
		}
	}
}

// TestSignersChange has the provider correct its names, and lose the controller's right: one Event for
// each difference.
func TestSignersChange(t *testing.T) {
	var fails error
	s, state := newComparison(t, "v1beta2", fields{"kubeletClientCertificateSigner": "example.com/a"}, &fails)
	look := func(signer string, err error, want string) {
		t.Helper()
		fails = nil
		set(t, state, signer, "status", "kubeletClientCertificateSigner")
		if e := s.live.(client.Client).Update(t.Context(), state); e != nil {
			t.Fatal(e)
		}
		fails = err
		s.look(t.Context())
		if got := s.event(); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s, %v: got the Event %q, want %q", signer, err, got, want)
		}
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: infrastructure.Group, Resource: "fakeclusters"}, work, errors.New("no right"))
	look("example.com/a", nil, "example.com/a")
	look("example.com/a", nil, "")
	look("example.com/b", nil, "example.com/b")
	look(csr.SignerKubeAPIServerClientKubelet, nil, "")
	look("example.com/b", nil, "example.com/b")
	look("example.com/c", forbidden, "")
	look("example.com/c", nil, "example.com/c")
}

// TestSignersWithoutInfrastructure has a Cluster that refers to none, or to a kind that is not served, and
// no Cluster: there is no Event.
func TestSignersWithoutInfrastructure(t *testing.T) {
	var none error
	for name, change := range map[string]func(s *signerComparison){
		"no kind":    func(s *signerComparison) { s.mapper = meta.NewDefaultRESTMapper(nil) },
		"no object":  func(s *signerComparison) { s.live = fake.NewClientBuilder().Build() },
		"no Cluster": func(s *signerComparison) { s.cluster = "other" },
		"no reference": func(s *signerComparison) {
			s.cached = newInventory(t, "v1beta2", nil, []client.Object{clusterOf("v1beta2", nil)}, nil).cached
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newComparison(t, "v1beta2", fields{"kubeletClientCertificateSigner": "example.com/a"}, &none)
			change(s)
			s.look(t.Context())
			if got := s.event(); got != "" {
				t.Errorf("got the Event %q", got)
			}
		})
	}
}
