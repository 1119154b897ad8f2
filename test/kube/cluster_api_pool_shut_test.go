package kube

import (
	"fmt"
	"path/filepath"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// poolOperator is bound to the shipped Role of those who shut pools.
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

// testShut has a thief of the pool's token, with a TPM of an accepted vendor and a slot that is free, get
// nothing after the command, neither by the stolen token nor by the one that replaces it. The pool's nodes go on.
func (p *pooled) testShut(t *testing.T, replicas int, nodes []*nodeMachine) {
	for _, manifest := range poolOperatorManifests {
		p.create(t, []byte(manifest))
	}
	o := &operator{kubectl: filepath.Join(controlplane.Binaries(t), "kubectl"), dir: filepath.Dir(buildProgram(t, "kubectl-nodeattest")),
		kubeconfig: p.writeKubeconfig(t, "pool-operator.kubeconfig", &clientcmdapi.AuthInfo{Token: p.serviceAccountToken(t, namespace, poolOperator)})}
	const stolenBy = 5 // it has left the pool
	thief, stolen := p.machine(t, stolenBy), p.token(t, workersPool)
	launched := append(append([]int{1, 2}, numbers(replicas+1, 2*replicas-3)...), 3, stolenBy)
	p.scales(t, workersPool, replicas+1, launched...)

	o.run(t, "pool shut "+workersPool, "MachinePool workers is shut")
	if got, err := p.tries(t, thief, stolen); err == nil && got.Reason != "NotAMember" || err != nil && !apierrors.IsUnauthorized(err) {
		t.Errorf("with the stolen token: %+v, %v", got, err)
	} else {
		t.Logf("with the stolen token, at once: %s %v", got.Reason, err)
	}
	eventually(t, func() error {
		if _, err := p.bootstrapSecret(t, stolen); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the Secret of the stolen token: %w", err)
		}
		return nil
	})
	eventually(t, func() error {
		if _, err := p.tries(t, thief, stolen); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("got %w, want Unauthorized", err)
		}
		return nil
	})
	var fresh string
	eventually(t, func() error {
		if fresh = p.token(t, workersPool); fresh == stolen {
			return fmt.Errorf("%w: the provider has made no other token", errNotYet)
		}
		return nil
	})
	p.notAdmitted(t, thief, "thief", thief.providerID(workersPool), fresh, "NotAMember", "is shut until kubectl nodeattest pool open")
	p.renew(t, nodes)
	if _, err := p.bootstrapSecret(t, fresh); err != nil {
		t.Errorf("the Secret of the new token, which is newer than the mark: %v", err)
	}
	o.run(t, "pool open "+workersPool, "MachinePool workers is open")
	p.joins(t, workersPool, stolenBy, fresh)
	p.renew(t, nodes)
}

// tries has a machine file its hello and, where it is challenged, its answer; a certificate is a failure.
func (p *pooled) tries(t *testing.T, m *poolMachine, token string) (got certificatesv1.CertificateSigningRequestCondition, err error) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	as, n := p.bearing(t, token), p.stranger(t, m.device, "thief", m.providerID(workersPool))
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
