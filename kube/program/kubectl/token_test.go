package kubectl

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
	"github.com/nodeattest/nodeattest/secret"
)

// TestToken: a token is for one bound node that attests with a TPM, only authenticates, ends after
// an hour, and stands on standard output only.
func TestToken(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	ended := &metav1.Time{Time: now.Add(-30 * 24 * time.Hour)}
	for name, row := range map[string]struct {
		node string
		spec v1alpha1.AttestedNodeSpec
		want string // in the error
	}{
		"a bound node":    {"node-1.rack.example", v1alpha1.AttestedNodeSpec{Scope: "ek RSA-2048", State: v1alpha1.NodeBound, LastEnd: ended}, ""},
		"a name too long": {strings.Repeat("a", 241), v1alpha1.AttestedNodeSpec{Scope: "ek RSA-2048", State: v1alpha1.NodeBound, LastEnd: ended}, "groups"},
		"a resting name":  {"node-1", v1alpha1.AttestedNodeSpec{Scope: "ek RSA-2048", State: v1alpha1.NodeResting, LastEnd: &metav1.Time{Time: now.Add(time.Hour)}}, "resting, not bound"},
		"a reserved name": {"node-1", v1alpha1.AttestedNodeSpec{Scope: "ek RSA-2048", State: v1alpha1.NodeReserved, Deadline: &metav1.Time{Time: now.Add(time.Minute)}}, "reserved, not bound"},
		"no record":       {"node-1", v1alpha1.AttestedNodeSpec{}, "node node-1 has no record"},
		"no node's name":  {"Node-1", v1alpha1.AttestedNodeSpec{}, "no node name"},
		"a document's":    {"node-1", v1alpha1.AttestedNodeSpec{Scope: "gce document", State: v1alpha1.NodeBound, LastEnd: ended}, "kubectl nodeattest release node-1"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, said bytes.Buffer
			store := objectstore.New()
			p := &plugin{streams: streams{out: &out, err: &said}, client: store, now: func() time.Time { return now }}
			if row.spec.State != "" {
				row.spec.Machine = "ek:sha256:" + strings.Repeat("0", 64)
				if err := store.Create(t.Context(), &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: row.node}, Spec: row.spec}); err != nil {
					t.Fatal(err)
				}
			}
			store.Counts() // discards the counts so far
			err := p.token(t.Context(), row.node)
			if row.want != "" {
				if _, writes := store.Counts(); err == nil || !strings.Contains(err.Error(), row.want) || writes != 0 || out.Len() != 0 {
					t.Fatalf("got %v, %q and %d writes, want %s", err, &out, writes, row.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			token, err := bootstraptoken.Parse(strings.TrimSuffix(out.String(), "\n"))
			if err != nil {
				t.Fatal(err)
			}
			var object corev1.Secret
			if err := store.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: bootstraptoken.SecretName(token.ID())}, &object); err != nil {
				t.Fatal(err)
			}
			if got := string(object.Data["expiration"]); got != "2030-01-02T04:04:05Z" || !strings.Contains(said.String(), got) || object.Data["usage-bootstrap-signing"] != nil {
				t.Errorf("until %s, %q, %d keys", got, &said, len(object.Data))
			}
			if _, half, _ := strings.Cut(out.String(), "."); strings.Contains(said.String(), strings.TrimSpace(half)) {
				t.Error("the secret stands elsewhere than on standard output")
			}
			bearer := &bootstraptoken.Object{Namespace: object.Namespace, Name: object.Name, Type: string(object.Type), Data: secret.New(object.Data)}
			s, err := bootstraptoken.ParseSecretFor(bearer, bootstraptoken.Usages{Authentication: true}, now)
			if err != nil {
				t.Fatal(err)
			}
			user := s.User()
			if q, err := (&csr.User{Username: user.Name, Groups: append(user.Groups, csr.AuthenticatedGroup)}).Requester(); err != nil || q.NodeName != row.node || q.TokenID != token.ID() || len(user.Groups) != 2 {
				t.Errorf("it is %+v in %q, %v", q, user.Groups, err)
			}
		})
	}
}

// TestTokenThatIsNotMade: a forbidden write and a closed output are errors.
func TestTokenThatIsNotMade(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	fault := errors.New("no such luck")
	for name, row := range map[string]struct {
		out   failingWriter
		write error
	}{"it may not": {write: fault}, "closed output": {out: failingWriter{fault}}} {
		t.Run(name, func(t *testing.T) {
			store := objectstore.New()
			p := &plugin{streams: streams{out: row.out, err: new(bytes.Buffer)}, client: store, now: func() time.Time { return now }}
			if err := store.Create(t.Context(), &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
				Spec: v1alpha1.AttestedNodeSpec{Scope: "ek RSA-2048", Machine: "ek:sha256:" + strings.Repeat("0", 64), State: v1alpha1.NodeBound}}); err != nil {
				t.Fatal(err)
			}
			store.Fault(func(int) (before, after error) { return row.write, nil })
			if err := p.token(t.Context(), "node-1"); !errors.Is(err, fault) {
				t.Errorf("got %v", err)
			}
		})
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write(b []byte) (int, error) { return len(b), w.err }
