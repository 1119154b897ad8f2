package clusterapi

import (
	"context"
	"errors"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestAuthorizer has a node join by the token of a Machine, with a TPM and first use.
func TestAuthorizer(t *testing.T) {
	joins := attesttest.NewNode(t, attesttest.NodeOptions{Road: attest.RoadEK})
	plane := attesttest.NewControlPlane(t, joins)
	hello := testkit.Must(joins.Hello(t.Context(), plane.Now()))
	answer := testkit.Must(joins.Answer(t.Context(), testkit.Must(plane.Verifier.Challenge(t.Context(), hello)), plane.Now()))
	token := testkit.Must(hello.User.Requester()).TokenID

	for name, row := range map[string]struct {
		annotations map[string]string // of the Cluster
		providerID  string            // of the Machine
		check       error             // nil: it is admitted
		retry       bool              // at the answer; the hello is challenged
	}{
		"admitted":                      {providerID: joins.ProviderID},
		"an authorized kind":            {providerID: joins.ProviderID, annotations: map[string]string{AnnotationAttestors: "gce,tpm"}},
		"a kind that is not authorized": {providerID: joins.ProviderID, annotations: map[string]string{AnnotationAttestors: "gce"}, check: attest.CheckMembership},
		"another provider ID":           {providerID: "metal://rack-9/9", check: csr.CheckProviderIDMismatch},
		"no provider ID yet":            {check: refusal.ErrRetry, retry: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet("v1beta2")
			f.cluster.SetAnnotations(row.annotations)
			f.oneConfig = configOf("v1beta2", "one", token)
			set(t, f.one, row.providerID, "spec", "providerID")
			registry := testkit.Must(membership.NewMemoryRegistry(membership.Scope{Cluster: attesttest.ClusterID, Road: attest.RoadEK, IdentityClass: "RSA-2048"},
				membership.RegistryOptions{Now: plane.Now}))
			first := testkit.Must(membership.NewFirstUse(membership.FirstUseConfig{Registry: registry, MaxLifetime: 24 * time.Hour, Now: plane.Now,
				NodeExists: func(context.Context, string) (bool, error) { return false, nil }}))
			i := newInventory(t, "v1beta2", registry, f.objects(), nil)
			config := plane.Config
			config.Policy = config.Policy.Clone()
			config.Policy.Machines, config.Authorizer = i.Machine, i.Authorizer(first)
			verifier := testkit.Must(attest.NewVerifier(config))

			_, atHello := verifier.Challenge(t.Context(), hello)
			result, atAnswer := verifier.Verify(t.Context(), answer)
			if !errors.Is(atAnswer, row.check) || errors.Is(atAnswer, refusal.ErrRetry) != row.retry {
				t.Errorf("answer: got %v, want %v", atAnswer, row.check)
			}
			if (atHello == nil) != (row.check == nil || row.retry) || !row.retry && !errors.Is(atHello, row.check) {
				t.Errorf("hello: got %v, want %v", atHello, row.check)
			}
			record := testkit.Must(registry.Lookup(t.Context(), joins.Name))
			if admitted := row.check == nil; admitted != (record != nil) || admitted && (record.MachineUID != "uid-of-one" || result.Granted.ProviderID != joins.ProviderID) {
				t.Errorf("the record is %+v", record)
			}
		})
	}
}

// stated are details of evidence that states a provider ID.
type stated string

func (s stated) ProviderID() string { return string(s) }

// TestStatedProviderID has evidence that states a provider ID, and a Machine that has it, another one or
// none yet. The request claims none.
func TestStatedProviderID(t *testing.T) {
	f := newFleet("v1beta2")
	for name, row := range map[string]struct {
		machine, stated string
		check           error
		retry           bool
	}{
		"the Machine has it":      {"metal://one", "metal://one", nil, false},
		"the Machine has another": {"metal://one", "metal://two", attest.CheckMembership, false},
		"the Machine has none":    {"", "metal://one", refusal.ErrRetry, true},
		"neither has one":         {"", "", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			set(t, f.one, row.machine, "spec", "providerID")
			i := newInventory(t, "v1beta2", recorded(t, ""), f.objects(), nil)
			policy := &csr.Policy{SignerNames: []string{csr.SignerClientTPM}, ClusterIDs: []string{"a-cluster"}, Machines: i.Machine}
			request := question(t, bootstrap, "").Request
			request.Spec.SignerName = csr.SignerClientTPM
			request.Spec.Usages = csr.PurposeClient.Usages(false)
			checked := testkit.Must(policy.Check(t.Context(), request.Parsed()))
			for _, stage := range []attest.Stage{attest.StageHello, attest.StageAnswer} {
				r := attest.NewResult(stage, checked)
				r.Provider, r.Machine, r.Details = "tpm", "metal:m", stated(row.stated)
				err := attest.AskMembership(t.Context(), i.Authorizer(attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
					return r.Admit("node-1"), nil
				})), r)
				if !errors.Is(err, row.check) || errors.Is(err, refusal.ErrRetry) != row.retry {
					t.Errorf("%s: got %v, want %v", stage, err, row.check)
				}
			}
		})
	}
}

// TestPausedCluster: a node whose Machine is gone is refused, and waits while the Cluster is paused or cannot be
// read: clusterctl move deletes Machines.
func TestPausedCluster(t *testing.T) {
	for name, row := range map[string]struct {
		change func(t *testing.T, s *swept)
		waits  bool
	}{
		"not paused":              {change: func(*testing.T, *swept) {}},
		"paused":                  {waits: true, change: func(t *testing.T, s *swept) { s.pause(t, true) }},
		"paused by an annotation": {waits: true, change: func(t *testing.T, s *swept) { s.change(t, clusterOf("v1beta2", nil), withNote(pausedAnnotation, "")) }},
		"being moved":             {waits: true, change: func(t *testing.T, s *swept) { s.change(t, clusterOf("v1beta2", nil), withNote(deleteForMove, "")) }},
		"paused by no boolean": {waits: true, change: func(t *testing.T, s *swept) {
			s.change(t, clusterOf("v1beta2", nil), func(o client.Object) { content(o)["spec"] = fields{"paused": "yes"} })
		}},
		"gone": {waits: true, change: func(t *testing.T, s *swept) {
			testkit.NoError(t, s.home.Delete(t.Context(), clusterOf("v1beta2", nil)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSwept(t, 2)
			i := s.inventory(t)
			i.cached = i.stored(t, "v1beta2", []client.Object{clusterOf("v1beta2", nil)}) // behind
			s.remove(t, "machine-1")
			row.change(t, s)
			_, err := i.Machine(t.Context(), question(t, csr.User{Username: "system:node:node-1", Groups: []string{"system:nodes", "system:authenticated"}}, ""))
			if err == nil || errors.Is(err, refusal.ErrRetry) != row.waits || !row.waits && !errors.Is(err, csr.ErrNoMachine) {
				t.Errorf("got %v, waits: %t", err, row.waits)
			}
		})
	}
}
