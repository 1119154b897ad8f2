package e2e

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/secret"
)

// testSecretLabels stores a token Secret with labels and annotations, finds it by a selector,
// and writes it back after it was read: the API server keeps both.
func (c *cluster) testSecretLabels(t *testing.T) {
	t.Helper()
	c.newToken(t, &bootstraptoken.CreateOptions{Labels: map[string]string{"example.com/rack": "8"}})
	made := c.newToken(t, &bootstraptoken.CreateOptions{
		Labels:      map[string]string{"example.com/rack": "7", "example.com/role": "worker"},
		Annotations: map[string]string{"example.com/ticket": "for the seventh rack, by hand"},
	})
	secrets := c.admin.CoreV1().Secrets(bootstraptoken.Namespace)
	selected := func() *corev1.Secret {
		found, err := secrets.List(t.Context(), metav1.ListOptions{LabelSelector: "example.com/rack=7,example.com/role"})
		if err != nil {
			t.Fatal(err)
		}
		if len(found.Items) != 1 || found.Items[0].Name != bootstraptoken.SecretName(made.Token.ID()) {
			t.Fatalf("the selector finds %d Secrets, want %s alone", len(found.Items), bootstraptoken.SecretName(made.Token.ID()))
		}
		return &found.Items[0]
	}

	stored := selected()
	read, err := bootstraptoken.ParseSecretUnchecked(objectOf(stored))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(made.Labels, read.Labels); diff != "" {
		t.Errorf("labels made (-) and read (+):\n%s", diff)
	}
	if diff := cmp.Diff(made.Annotations.Reveal(), read.Annotations.Reveal()); diff != "" {
		t.Errorf("annotations made (-) and read (+):\n%s", diff)
	}

	read.Expiration = read.Expiration.Add(time.Hour)
	again, err := read.Object()
	if err != nil {
		t.Fatal(err)
	}
	stored.Labels, stored.Annotations, stored.Data = again.Labels, again.Annotations.Reveal(), again.Data.Reveal()
	if _, err := secrets.Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	kept := selected()
	if got, want := string(kept.Data["expiration"]), read.Expiration.Format(time.RFC3339); got != want {
		t.Errorf("the expiration written is %s, and stored %s", want, got)
	}
	if !maps.Equal(kept.Labels, made.Labels) || !maps.Equal(kept.Annotations, made.Annotations.Reveal()) {
		t.Errorf("after a new expiration the Secret has the labels %v and annotations %v", kept.Labels, kept.Annotations)
	}
	t.Logf("the API server keeps the labels %v and %d annotations", kept.Labels, len(kept.Annotations))
}

// objectOf is a Secret as package bootstraptoken reads it.
func objectOf(s *corev1.Secret) *bootstraptoken.Object {
	return &bootstraptoken.Object{
		Namespace: s.Namespace, Name: s.Name, UID: string(s.UID), ResourceVersion: s.ResourceVersion, Type: string(s.Type),
		Data: secret.New(s.Data), Labels: s.Labels, Annotations: secret.New(s.Annotations),
	}
}
