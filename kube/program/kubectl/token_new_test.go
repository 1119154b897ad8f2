package kubectl

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/bootstraptoken/bootstraptokentest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/secret"
)

// madeToken reads the Secret of the token on standard output.
func madeToken(t *testing.T, o *operated) *bootstraptoken.Secret {
	t.Helper()
	token, err := bootstraptoken.Parse(strings.TrimSuffix(o.out.String(), "\n"))
	if err != nil {
		t.Fatalf("standard output is not a token alone: %v", err)
	}
	var object corev1.Secret
	if err := o.client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: bootstraptoken.SecretName(token.ID())}, &object); err != nil {
		t.Fatal(err)
	}
	s, err := bootstraptoken.ParseSecretFor(&bootstraptoken.Object{Namespace: object.Namespace, Name: object.Name, Type: string(object.Type), Data: secret.New(object.Data)},
		bootstraptoken.Usages{Authentication: true}, o.now())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTokenOfTheInventory: with --new, a token is for a node that the inventory has and that has no record.
func TestTokenOfTheInventory(t *testing.T) {
	const inventory = "machines:\n- nodeName: node-1\n  identity: " + honest + "\n  kind: strange\n- nodeName: node-2\n"
	for name, row := range map[string]struct {
		node, inventory string
		set             func(o *operated)
		want            string // in the error, or in standard error
		refused         bool
	}{
		"a machine with an identity":    {"node-1", inventory, func(*operated) {}, "for node node-1 and machine " + honest, false},
		"a machine without an identity": {"node-2", inventory, func(*operated) {}, "for node node-2 and a machine that is not recorded yet", false},
		"a name of no inventory":        {"node-3", inventory, func(*operated) {}, `the inventory has no node "node-3"`, true},
		"no inventory":                  {"node-1", "", func(*operated) {}, "the inventory cannot be read", true},
		"a bound name":                  {"node-1", inventory, withRecord(v1alpha1.NodeBound), "has a record, which is bound", true},
		"a reserved name":               {"node-1", inventory, withRecord(v1alpha1.NodeReserved), "has a record, which is reserved", true},
		"a resting name":                {"node-1", inventory, withRecord(v1alpha1.NodeResting), "has a record, which is resting", true},
	} {
		t.Run(name, func(t *testing.T) {
			o := operates(t, row.inventory)
			o.newNode = true
			row.set(o)
			err := o.token(t.Context(), row.node)
			if row.refused {
				var secrets corev1.SecretList
				_ = o.client.List(t.Context(), &secrets)
				if err == nil || !strings.Contains(err.Error(), row.want) || len(secrets.Items) != 0 || o.out.Len() != 0 {
					t.Errorf("got %v, %d Secrets, want %s", err, len(secrets.Items), row.want)
				}
				return
			}
			if err != nil || !strings.Contains(o.err.String(), row.want) {
				t.Fatalf("got %v and %q, want %s", err, &o.err, row.want)
			}
			if s := madeToken(t, o); len(s.Groups) != 1 || s.Groups[0] != csr.TokenGroup(row.node) || s.Usages.Signing || s.Expiration.Sub(o.now()) != tokenTTL {
				t.Errorf("it is of groups %q, with %+v, until %s", s.Groups, s.Usages, s.Expiration)
			}
		})
	}
}

func withRecord(state v1alpha1.NodeState) func(o *operated) {
	return func(o *operated) {
		end := metav1.NewTime(o.now().Add(time.Minute))
		spec := v1alpha1.AttestedNodeSpec{Scope: "ek RSA-2048", Machine: "ek:sha256:" + strings.Repeat("0", 64), State: state}
		switch state {
		case v1alpha1.NodeReserved:
			spec.Deadline = &end
		default:
			spec.LastEnd = &end
		}
		if err := o.client.Create(context.Background(), &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: spec}); err != nil {
			panic(err)
		}
	}
}

// TestTokenJoin: --join shows the command with the pins of the published document, and makes a token that
// signs it. The token stands on standard output alone.
func TestTokenJoin(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	if err := cluster.AddCA(); err != nil {
		t.Fatal(err)
	}
	pins := cluster.Info().Pins()
	six := publishedBy(cluster)
	six.Data[bootstraptoken.KubeconfigKey] = strings.Replace(six.Data[bootstraptoken.KubeconfigKey], "127.0.0.1", "[::1]", 1)
	system := publishedBy(cluster)
	system.Data[bootstraptoken.KubeconfigKey] = string(must((&bootstraptoken.ClusterInfo{Server: cluster.URL(), SystemRoots: true}).Marshal()))
	for name, row := range map[string]struct {
		objects []client.Object
		want    string
		refused bool
	}{
		"IPv4":        {[]client.Object{publishedBy(cluster)}, "discover --token-file FILE --ca-cert-hash " + pins[0].String() + " --ca-cert-hash " + pins[1].String() + " " + cluster.URL() + "\n", false},
		"IPv6":        {[]client.Object{six}, " '" + strings.Replace(cluster.URL(), "127.0.0.1", "[::1]", 1) + "'\n", false},
		"no CA":       {[]client.Object{system}, "has no CA", true},
		"no document": {nil, "publishes no discovery document", true},
	} {
		t.Run(name, func(t *testing.T) {
			o := operates(t, "machines:\n- nodeName: node-1\n", row.objects...)
			o.newNode, o.join = true, true
			err := o.token(t.Context(), "node-1")
			if row.refused {
				if err == nil || !strings.Contains(err.Error(), row.want) || o.out.Len() != 0 {
					t.Errorf("got %v, %q", err, &o.out)
				}
				return
			}
			if err != nil || !strings.Contains(o.err.String(), row.want) {
				t.Fatalf("got %v and %q, want %s", err, &o.err, row.want)
			}
			s := madeToken(t, o)
			if _, half, _ := strings.Cut(s.Token.Reveal(), "."); !s.Usages.Signing || strings.Contains(o.err.String(), half) {
				t.Errorf("usages %+v, said %q", s.Usages, &o.err)
			}
		})
	}
}
