package kube

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/kube/clusterapi"
)

// testRights: each right of the components for pools was needed, none was missing, and the controller's account
// can write no Secrets but the tokens of pools.
func (p *pooled) testRights(t *testing.T) {
	var all [][]byte
	for _, file := range []string{"clusterapi-pools-nodes/rbac.yaml", "clusterapi-pool-tokens-nodes/rbac.yaml"} {
		all = append(all, manifests(t, file)...)
	}
	for _, manifest := range poolOperatorManifests {
		all = append(all, []byte(manifest))
	}
	p.checkRights(t, all)
	for _, a := range p.home.audit(t) {
		if strings.HasSuffix(a.User.Username, ":node-attestation-controller") && a.ResponseStatus.Code == 403 {
			t.Errorf("on the management cluster: %s %+v: %s", a.Verb, a.ObjectRef, a.ResponseStatus.Message)
		}
	}
	t.Run("policies", p.testTokenPolicies)
}

// A tokenWrite is a write of a Secret in kube-system, by the controller's account or by an administrator.
type tokenWrite struct {
	name   string
	before func(s *corev1.Secret) // how the Secret was; nil: a bootstrap token without a label
	write  func(s *corev1.Secret) // nil: it deletes
	refuse string                 // "": the write is accepted
}

const (
	notAToken  = "writes no Secret of kube-system but those of bootstrap tokens"
	labelFirst = "labels the Secret of a pool's bootstrap token before another write"
	onlyTheEnd = "changes nothing of a bootstrap token but its expiration"
	ofNoPool   = "no account but the controller's says of which MachinePool"
	asWritten  = "no account but the controller's changes what it wrote"
	sameToken  = "becomes none of another token"
)

func poolLabel(uid string) func(s *corev1.Secret) {
	return func(s *corev1.Secret) { s.Labels = map[string]string{clusterapi.LabelPoolUID: uid} }
}

func poolTokenEnd(s *corev1.Secret) {
	s.Data["expiration"] = []byte(time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
}

func poolNotes(notes map[string]string) func(s *corev1.Secret) {
	return func(s *corev1.Secret) { s.Annotations = notes }
}

func opaque(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }

func owned(s *corev1.Secret) {
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "uid-of-owner"}}
}

func otherHalf(s *corev1.Secret) { s.Data["token-secret"] = []byte("fedcba9876543210") }

func inTurn(all ...func(s *corev1.Secret)) func(s *corev1.Secret) {
	return func(s *corev1.Secret) {
		for _, f := range all {
			f(s)
		}
	}
}

// controllerWrites are the writes of the controller's account.
func controllerWrites() []tokenWrite {
	ours := poolLabel("uid-1")
	return []tokenWrite{
		{"the label of a pool", nil, ours, ""},
		{"an annotation with the label", nil, inTurn(ours, poolNotes(map[string]string{clusterapi.AnnotationPool: "a/b/c"})), ""},
		{"the end of a token with the label", ours, poolTokenEnd, ""},
		{"its deletion", ours, nil, ""},
		{"the end of a token without the label", nil, poolTokenEnd, labelFirst},
		{"the end and the label at once", nil, inTurn(ours, poolTokenEnd), onlyTheEnd},
		{"the deletion of one without the label", nil, nil, labelFirst},
		{"the label of another pool", ours, poolLabel("uid-2"), labelFirst},
		{"an empty label", nil, poolLabel(""), labelFirst},
		{"no label any more", ours, func(s *corev1.Secret) { s.Labels = nil }, labelFirst},
		{"another secret half", ours, otherHalf, onlyTheEnd},
		{"another field", ours, func(s *corev1.Secret) { s.Data["auth-extra-groups"] = []byte("system:bootstrappers:others") }, onlyTheEnd},
		{"a field less", ours, func(s *corev1.Secret) { delete(s.Data, "usage-bootstrap-authentication") }, onlyTheEnd},
		{"a Secret that cannot be changed", ours, func(s *corev1.Secret) { s.Immutable = new(true) }, onlyTheEnd},
		{"a Secret that cannot be deleted", ours, func(s *corev1.Secret) { s.Finalizers = []string{"example.com/kept"} }, onlyTheEnd},
		{"an owner", ours, owned, onlyTheEnd},
		{"the label on another type", opaque, ours, notAToken},
		{"the deletion of another type", inTurn(opaque, ours), nil, notAToken},
		{"the label on one with an owner", owned, ours, notAToken},
		{"the deletion of one with an owner", inTurn(owned, ours), nil, notAToken},
	}
}

// otherWrites are the writes of an administrator.
func otherWrites() []tokenWrite {
	ours := poolLabel("uid-1")
	return []tokenWrite{
		{"the end of a token", ours, poolTokenEnd, ""},
		{"an annotation of its own", ours, poolNotes(map[string]string{"example.com/note": "mine"}), ""},
		{"no label any more", ours, func(s *corev1.Secret) { s.Labels = nil }, ""},
		{"its deletion", ours, nil, ""},
		{"another secret half without the label", nil, otherHalf, ""},
		{"a label", nil, ours, ofNoPool},
		{"the label of another pool", ours, poolLabel("uid-2"), ofNoPool},
		{"another pool's name", ours, poolNotes(map[string]string{clusterapi.AnnotationPool: "a/b/c"}), asWritten},
		{"another KubeadmConfig", ours, poolNotes(map[string]string{"nodeattest.github.io/cluster-api-pool-config": "c"}), asWritten},
		{"another secret half", ours, otherHalf, sameToken},
		{"another field", ours, func(s *corev1.Secret) {
			s.StringData = map[string]string{"auth-extra-groups": "system:bootstrappers:others"}
		}, sameToken},
		{"a field less", ours, func(s *corev1.Secret) { delete(s.Data, "usage-bootstrap-authentication") }, sameToken},
	}
}

// testTokenPolicies has accounts write Secrets, under the shipped policies. The Secrets with labels were there before.
func (p *pooled) testTokenPolicies(t *testing.T) {
	config := p.withToken(t, p.serviceAccountToken(t, namespace, "node-attestation-controller"))
	writers := map[string]struct {
		as   client.Client
		rows []tokenWrite
	}{"controller": {p.client(t, config), controllerWrites()}, "administrator": {p.admin, otherWrites()}}
	policies := manifests(t, "clusterapi-pool-tokens-nodes/admission.yaml")
	for _, manifest := range policies {
		if err := p.admin.Delete(t.Context(), decode(t, manifest)); err != nil {
			t.Fatal(err)
		}
	}
	made, first := map[string]*corev1.Secret{}, (*corev1.Secret)(nil)
	for writer, of := range writers {
		for n, row := range of.rows {
			id := writer[:1] + fmt.Sprintf("%05d", n)
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id}, Type: corev1.SecretTypeBootstrapToken,
				Data: map[string][]byte{"token-id": []byte(id), "token-secret": []byte(tokenSecret), "usage-bootstrap-authentication": []byte("true"), "expiration": []byte("2026-01-02T03:04:05Z")}}
			if row.before != nil {
				row.before(s)
			}
			eventually(t, func() error { return client.IgnoreAlreadyExists(p.admin.Create(t.Context(), s.DeepCopy())) })
			if err := p.admin.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
				t.Fatal(err)
			}
			made[writer+row.name], first = s, s
		}
	}
	p.apply(t, "clusterapi-pool-tokens-nodes/admission.yaml")
	eventually(t, func() error { // until both policies are in force
		for as, with := range map[client.Client]func(*corev1.Secret){writers["controller"].as: otherHalf, p.admin: poolLabel("uid-9")} {
			s := first.DeepCopy()
			with(s)
			if err := as.Update(t.Context(), s, client.DryRunAll); !apierrors.IsForbidden(err) {
				return fmt.Errorf("%w: %w", errNotYet, err)
			}
		}
		return nil
	})
	for writer, of := range writers {
		for _, row := range of.rows {
			t.Run(writer+": "+row.name, func(t *testing.T) {
				var err error
				s := made[writer+row.name]
				if row.write == nil {
					err = of.as.Delete(t.Context(), s)
				} else {
					row.write(s)
					err = of.as.Update(t.Context(), s)
				}
				if row.refuse == "" && err != nil || row.refuse != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), row.refuse)) {
					t.Errorf("got %v, want %q", err, row.refuse)
				}
			})
		}
	}
	t.Run("administrator: a new Secret with the label", func(t *testing.T) {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-forged"}, Type: corev1.SecretTypeBootstrapToken,
			Data: map[string][]byte{"token-id": []byte("forged"), "token-secret": []byte(tokenSecret)}}
		poolLabel("uid-1")(s)
		if err := p.admin.Create(t.Context(), s); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), ofNoPool) {
			t.Errorf("got %v, want %q", err, ofNoPool)
		}
	})
}
