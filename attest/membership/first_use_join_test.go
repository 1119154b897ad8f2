package membership_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// The whole join under trust on first use: the hello is not recorded,
// the answer is, another node name of the same machine is refused, and so is the
// name after the machine has gone, until the certificate has expired.
func TestFirstUseJoin(t *testing.T) {
	ctx := context.Background()
	profile := tpmcert.ProfileTCG()
	profile.OneAKPerMachine = true
	node := attesttest.NewNode(t, attesttest.NodeOptions{Profile: profile})
	plane := attesttest.NewControlPlane(t, node)

	registry := testkit.Must(membership.NewMemoryRegistry(membership.Scope{Cluster: attesttest.ClusterID}, membership.RegistryOptions{Now: plane.Now}))
	const lifetime = 24 * time.Hour
	first := testkit.Must(membership.NewFirstUse(membership.FirstUseConfig{Registry: registry, MaxLifetime: lifetime, Now: plane.Now,
		NodeExists: func(context.Context, string) (bool, error) { return false, nil }}))
	config := plane.Config
	config.Authorizer = membership.Both(config.Authorizer, first)
	plane.Verifier = testkit.Must(attest.NewVerifier(config))

	challenge := testkit.Must(plane.Challenge(ctx, node))
	if r, err := registry.Lookup(ctx, node.Name); err != nil || r != nil {
		t.Fatalf("after the hello: got record %+v, %v", r, err)
	}
	answer := testkit.Must(node.Answer(ctx, challenge, plane.Now()))
	result := testkit.Must(plane.Verifier.Verify(ctx, answer))
	issued := testkit.Must(plane.CA.Issue(ctx, result.Attested()))
	r, err := registry.Lookup(ctx, node.Name)
	if err != nil || r == nil || r.State != membership.StateBound || r.Machine != result.Machine {
		t.Fatalf("after the answer: got record %+v, %v", r, err)
	}
	if issued.Certificate.NotAfter.After(r.LastEnd) {
		t.Errorf("the certificate lives until %s, the record says %s", issued.Certificate.NotAfter, r.LastEnd)
	}

	testkit.Must(registry.Release(ctx, node.Name, r.MachineUID))
	_, err = plane.Verifier.Verify(ctx, answer) // filed again
	if !errors.Is(err, membership.CheckRegistryResting) || csr.Decide(err).Verdict != csr.VerdictDeny {
		t.Errorf("after the machine has gone: got %v, want %s", err, membership.CheckRegistryResting)
	}
	plane.Advance(lifetime + 2*message.MaxAnswerAge + 2*time.Second)
	if r, err := registry.Lookup(ctx, node.Name); err != nil || r != nil {
		t.Errorf("a day later: got record %+v, %v", r, err)
	}
	if _, err := plane.Join(ctx, node); err != nil {
		t.Errorf("a day later: %v", err)
	}
}

// With a CA of its own, the name is the machine's once the certificate is issued, with its
// record. A registry of another cluster, and a list with a mistake in it, are refused when the
// verifier is made.
func TestFirstUseOwnCA(t *testing.T) {
	ctx := context.Background()
	profile := tpmcert.ProfileTCG()
	profile.OneAKPerMachine = true
	node := attesttest.NewNode(t, attesttest.NodeOptions{Profile: profile})
	plane := attesttest.NewControlPlane(t, node)
	config := plane.Config
	members := func(cluster string) (attest.Authorizer, membership.Registry) {
		registry := testkit.Must(membership.NewMemoryRegistry(membership.Scope{Cluster: cluster}, membership.RegistryOptions{Now: plane.Now}))
		first := testkit.Must(membership.NewFirstUse(membership.FirstUseConfig{Registry: registry, MaxLifetime: 24 * time.Hour, Now: plane.Now, OwnCA: plane.CA,
			NodeExists: func(context.Context, string) (bool, error) { return false, nil }}))
		return membership.Both(config.Authorizer, first), registry
	}
	authorizer, _ := members("cluster-2")
	typo := testkit.Must(membership.NewStaticList([]membership.Member{{Machine: "gce:p/1", NodeName: "node-1"}, {Machine: "gec:p/2", NodeName: "node-2"}}))
	for want, a := range map[attest.Check]attest.Authorizer{membership.CheckRegistryScope: authorizer, "member-list": typo} {
		refused := config
		refused.Authorizer = a
		if _, err := attest.NewVerifier(refused); !errors.Is(err, want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}

	authorizer, registry := members(attesttest.ClusterID)
	config.Authorizer = authorizer
	plane.Verifier = testkit.Must(attest.NewVerifier(config))
	challenge := testkit.Must(plane.Challenge(ctx, node))
	answer := testkit.Must(node.Answer(ctx, challenge, plane.Now()))
	result := testkit.Must(plane.Verifier.Verify(ctx, answer))
	if r, err := registry.Lookup(ctx, node.Name); err != nil || r == nil || r.State != membership.StateReserved {
		t.Fatalf("after the answer: got record %+v, %v", r, err)
	}
	issued := testkit.Must(plane.CA.Issue(ctx, result.Attested()))
	r, err := registry.Lookup(ctx, node.Name)
	if err != nil || r == nil || r.State != membership.StateBound || len(r.Issued) != 1 || r.Issued[0].CredentialID != issued.Record.CredentialID {
		t.Errorf("after the certificate: got record %+v, %v", r, err)
	}
}
