package kube

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// poolOperator is an account with the shipped Role of an operator of pools.
const poolOperator = "pool-operator"

var poolOperatorManifests = []string{`apiVersion: v1
kind: ServiceAccount
metadata: {name: ` + poolOperator + `, namespace: ` + namespace + `}
`, `apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: ` + poolOperator + `, namespace: ` + namespace + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: node-attestation-operator-pools}
subjects: [{kind: ServiceAccount, name: ` + poolOperator + `, namespace: ` + namespace + `}]
`}

// testShut has a thief, with a TPM of an accepted vendor and a slot that is free, get nothing after the command: by the
// stolen token, which the provider has replaced and the Secret still authenticates, by the pool's, and by the one
// that the provider makes then. The pool's node goes on.
func (p *pooled) testShut(t *testing.T, stolen string, node poolNode) {
	for _, manifest := range poolOperatorManifests {
		p.create(t, []byte(manifest))
	}
	o := &operator{kubectl: filepath.Join(controlplane.Binaries(t), "kubectl"), dir: filepath.Dir(buildProgram(t, "kubectl-nodeattest")),
		kubeconfig: p.writeKubeconfig(t, "pool-operator.kubeconfig", &clientcmdapi.AuthInfo{Token: p.serviceAccountToken(t, namespace, poolOperator)})}
	commands := partOfPage(t, "cluster-api-operation.md", "sh").steps(t, "Replace a compromised pool")
	if len(commands) != 2 {
		t.Fatalf("the page has %d commands, want one that shuts the pool and one that opens it", len(commands))
	}
	runs := func(n int, want string) {
		t.Helper()
		out, err := o.plain(t.Context(), strings.Fields(strings.ReplaceAll(commands[n], " workers", " "+sparePool))[1:]...)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v, %s, want %q", err, out, want)
		}
	}
	thief, now := p.machine(t, 5), p.token(t, sparePool) // it has left the other pool
	p.pause(t, sparePool, false)
	p.scales(t, sparePool, 3, node.m.nth, 4, thief.nth)

	runs(0, "MachinePool spare is shut")
	for _, token := range []string{stolen, now} {
		if got, err := p.tries(t, thief, token); err == nil && got.Reason != "NotAMember" || err != nil && !apierrors.IsUnauthorized(err) {
			t.Errorf("with token %.6s: %+v, %v", token, got, err)
		} else {
			t.Logf("with token %.6s, at once: %s %v", token, got.Reason, err)
		}
	}
	for _, token := range []string{stolen, now} {
		eventually(t, func() error {
			if _, err := p.bootstrapSecret(t, token); !apierrors.IsNotFound(err) {
				return fmt.Errorf("the Secret of token %.6s: %w", token, err)
			}
			if err := p.bearing(t, token).Create(t.Context(), new(authenticationv1.SelfSubjectReview)); !apierrors.IsUnauthorized(err) {
				return fmt.Errorf("token %.6s: %w: got %w, want Unauthorized", token, errNotYet, err) // the API server remembers it for 10 s
			}
			return nil
		})
	}
	var fresh string
	eventually(t, func() error {
		if fresh = p.token(t, sparePool); fresh == now {
			return fmt.Errorf("%w: the provider has made no other token", errNotYet)
		}
		return nil
	})
	p.notAdmitted(t, thief, "thief", thief.providerID(sparePool), fresh, "NotAMember", "is shut until kubectl nodeattest pool open")
	p.renew(t, node)
	if _, err := p.bootstrapSecret(t, fresh); err != nil {
		t.Errorf("the Secret of the new token, which is newer than the mark: %v", err)
	}
	runs(1, "MachinePool spare is open")
	p.joins(t, sparePool, thief.nth, fresh)
	p.renew(t, node)
}

// tries has a machine file its hello and, where it is challenged, its answer; a certificate is a failure.
func (p *pooled) tries(t *testing.T, m *poolMachine, token string) (got certificatesv1.CertificateSigningRequestCondition, err error) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	as, n := p.bearing(t, token), p.stranger(t, m.device, "thief", m.providerID(sparePool))
	spec, err := n.Attester.Hello(t.Context(), n.Subject)
	for err == nil {
		object := requestOf(spec)
		if err = as.Create(t.Context(), object); err != nil {
			break
		}
		object = decided(t, p.admin, object)
		got = object.Status.Conditions[0]
		if len(object.Status.Certificate) != 0 {
			t.Error("the thief has a certificate")
		}
		challenge, notChallenged := attest.ChallengeOf(controller.Request(object))
		if notChallenged != nil {
			break
		}
		spec, err = n.Attester.Answer(t.Context(), challenge, n.Certified, n.Subject)
	}
	return got, err
}
