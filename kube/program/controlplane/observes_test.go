package controlplane

import (
	"context"
	"errors"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestMayObserve: a controller observes only while no binding of the component enforce refuses. What
// cannot be read may refuse.
func TestMayObserve(t *testing.T) {
	binding := func(name string, actions ...admissionv1.ValidationAction) client.Object {
		return &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{ValidationActions: actions}}
	}
	fault := errors.New("no answer")
	for name, row := range map[string]struct {
		bindings []client.Object
		err      error
		want     bool
	}{
		"none":                 {want: true},
		"that which observes":  {bindings: []client.Object{binding("node-attestation-observe", "Warn", "Audit")}, want: true},
		"one that warns":       {bindings: []client.Object{binding("node-attestation", "Warn", "Audit")}, want: true},
		"another one's":        {bindings: []client.Object{binding("other", "Deny")}, want: true},
		"requests":             {bindings: []client.Object{binding("node-attestation", "Deny")}},
		"approvals alone":      {bindings: []client.Object{binding("node-attestation-approval", "Deny")}},
		"certificates alone":   {bindings: []client.Object{binding("node-attestation-signing", "Audit", "Deny")}},
		"no answer":            {err: fault},
		"no answer about some": {bindings: []client.Object{binding("node-attestation-approval", "Warn")}, err: fault},
	} {
		t.Run(name, func(t *testing.T) {
			reader := fake.NewClientBuilder().WithScheme(clientscheme.Scheme).WithObjects(row.bindings...).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
					if row.err != nil && (len(row.bindings) == 0 || key.Name == "node-attestation-signing") {
						return row.err
					}
					return c.Get(ctx, key, into, options...)
				}}).Build()
			if got, err := mayObserve(t.Context(), reader); got != row.want || !errors.Is(err, row.err) {
				t.Errorf("got %t, %v, want %t, %v", got, err, row.want, row.err)
			}
		})
	}
}
