//go:build !kubernetes137

package kubernetes

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/nodeattest/nodeattest/csr"
)

// policy runs the shipped admission policy in the API server's plugin, with changes of its
// parameter.
func policy(t *testing.T, change func(m *corev1.ConfigMap)) admission.ValidationInterface {
	t.Helper()
	var text []byte
	for _, file := range []string{"admission.yaml", "enforce/admission.yaml"} {
		more, err := os.ReadFile("../../kube/deploy/" + file)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, "\n---\n"...), more...)
	}
	text = bytes.TrimPrefix(text, []byte("\n---\n"))
	objects := []runtime.Object{&corev1.Namespace{}}
	objects[0].(*corev1.Namespace).Name = "nodeattest-system"
	for manifest := range bytes.SplitSeq(text, []byte("\n---\n")) {
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(manifest, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		switch o := o.(type) {
		case *corev1.ConfigMap:
			if change(o); o.Data == nil {
				continue // deleted
			}
		case *admissionv1.ValidatingAdmissionPolicy: // as an API server completes it
			every, all, m := admissionv1.Equivalent, admissionv1.AllScopes, o.Spec.MatchConstraints
			m.MatchPolicy, m.NamespaceSelector, m.ObjectSelector, m.ResourceRules[0].Scope = &every, &metav1.LabelSelector{}, &metav1.LabelSelector{}, &all
		}
		objects = append(objects, o)
	}
	client := fake.NewClientset(objects...)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	p, err := validating.NewPlugin(nil)
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	p.SetExternalKubeInformerFactory(factory)
	p.SetExternalKubeClientSet(client)
	p.SetRESTMapper(mapper)
	p.SetDynamicClient(dynamicfake.NewSimpleDynamicClient(scheme.Scheme))
	p.SetAuthorizer(authorizerfactory.NewAlwaysDenyAuthorizer())
	p.SetDrainedNotification(t.Context().Done())
	if err := p.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return p
}

// ask files a request as a member of a group.
func ask(ctx context.Context, p admission.ValidationInterface, group, signer, request string) error {
	o := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer, Request: []byte(request)}}
	kind, resource := certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")
	a := admission.NewAttributesRecord(o, nil, kind, "", "r", resource, "", admission.Create, nil, false, &user.DefaultInfo{Name: "u", Groups: []string{group}})
	return p.Validate(ctx, a, admission.NewObjectInterfacesFromScheme(scheme.Scheme))
}

// TestAdmission has nodes ask signers, with the shipped list of them and with others.
func TestAdmission(t *testing.T) {
	const evidence, rack = "..." + csr.BlockData + "...", "cluster.x-k8s.io/kube-apiserver-client-kubelet-rack"
	shipped := func(*corev1.ConfigMap) {}
	withRack := func(m *corev1.ConfigMap) { m.Data["rack"] = rack + "\n" }
	for name, row := range map[string]struct {
		change                 func(m *corev1.ConfigMap)
		group, signer, request string
		want                   string // in the refusal; "": it is allowed
	}{
		"a signer of the list":            {shipped, csr.BootstrappersGroup, csr.SignerClientTPM, "r", ""},
		"the last of a kind":              {shipped, csr.BootstrappersGroup, csr.SignerRecoveryTPM, "r", ""},
		"a hello":                         {shipped, csr.BootstrappersGroup, csr.SignerChallengeTPM, "r", ""},
		"another kind's":                  {shipped, csr.BootstrappersGroup, "cluster.x-k8s.io/kubelet-serving-nitro", "r", ""},
		"a kind that is not served":       {shipped, csr.BootstrappersGroup, rack, "r", "signer " + rack + " is not in the ConfigMap node-attestation-signers"},
		"a kind that was added":           {withRack, csr.BootstrappersGroup, rack, "r", ""},
		"the others, with it":             {withRack, csr.NodesGroup, csr.SignerServingTPM, "r", ""},
		"a signer of the kind, not there": {withRack, csr.BootstrappersGroup, "cluster.x-k8s.io/kubelet-serving-rack", "r", "signer cluster.x-k8s.io/kubelet-serving-rack is not"},
		"no signer":                       {withRack, csr.BootstrappersGroup, "", "r", "is not in the ConfigMap"},
		"a kind that was taken out":       {func(m *corev1.ConfigMap) { delete(m.Data, "tpm") }, csr.BootstrappersGroup, csr.SignerClientTPM, "r", "signer " + csr.SignerClientTPM},
		"no ConfigMap":                    {func(m *corev1.ConfigMap) { m.Data = nil }, csr.BootstrappersGroup, csr.SignerClientTPM, "r", "denied"},
		"Kubernetes' own, with evidence":  {shipped, csr.BootstrappersGroup, csr.SignerKubeAPIServerClientKubelet, evidence, ""},
		"Kubernetes' own, without":        {shipped, csr.BootstrappersGroup, csr.SignerKubeAPIServerClientKubelet, "r", "asks for its client certificate with evidence"},
		"a node's serving certificate":    {shipped, csr.NodesGroup, csr.SignerKubeletServing, "r", ""},
		"a bootstrap token's":             {shipped, csr.BootstrappersGroup, csr.SignerKubeletServing, "r", "signer " + csr.SignerKubeletServing},
		"another group":                   {shipped, "developers", "example.com/signer", "r", ""},
		"a large one":                     {shipped, csr.BootstrappersGroup, csr.SignerClientTPM, strings.Repeat("r", 256<<10+3), "over 256 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy(t, row.change)
			for end := time.Now().Add(5 * time.Second); ask(t.Context(), p, csr.BootstrappersGroup, "example.com/probe", "r") == nil; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the policy is not in force")
				}
			}
			err := ask(t.Context(), p, row.group, row.signer, row.request)
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want a refusal with %q", err, row.want)
			}
		})
	}
}
