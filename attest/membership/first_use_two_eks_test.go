package membership_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/membership"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// highRange is the certificate of a TPM's EK of the high range, as its vendor issues it.
func highRange(t testing.TB, tpm *tpmsim.TPM, ca *tpmsim.CA, ek tpmkind.EKOrigin) [][]byte {
	t.Helper()
	rsp := testkit.Must(tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHEndorsement, InPublic: tpm2.New2B(*ek.Template)}.Execute(tpm))
	testkit.Must((tpm2.FlushContext{FlushHandle: rsp.ObjectHandle}).Execute(tpm))
	public := testkit.Must(statement.ParsePublic(rsp.OutPublic.Bytes()))
	key := testkit.Must(public.Key())
	cert := testkit.Must(ca.IssueEK(key, tpmsim.CertificateOptions{}))
	return [][]byte{cert.Raw, ca.EKIntermediate().Raw}
}

// One TPM has two EKs of one algorithm, of the low and of the high range, each with the
// vendor's certificate. It gets one name for one Machine of the inventory, and none where
// the inventory tells no Machines apart.
func TestTwoEKsOfOneAlgorithm(t *testing.T) {
	ca := testkit.Must(tpmsim.NewCA(tpmsim.CAOptions{}))
	device := tpmsim.New(t, tpmsim.Options{CA: ca})
	high := tpmkind.EKHigh(1)
	certificates := highRange(t, device, ca, high)
	node := func(name string, ek tpmkind.EKOrigin, certs [][]byte) *attesttest.Node {
		return attesttest.NewNode(t, attesttest.NodeOptions{TPM: device, Name: name, Road: attest.RoadEK, EK: ek, Certificates: certs,
			AK: tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP256()}})
	}
	one, two := node("node-1", tpmkind.EKRSA2048(), nil), node("node-2", high, certificates)
	plane := attesttest.NewControlPlane(t, one, two)
	for _, c := range []struct {
		name     string
		uid      string // of every Machine
		insecure bool
		first    error
		second   error
		verdict  csr.Verdict // of the second
	}{
		{"one Machine", "uid-1", false, nil, attest.Check("registry-machine-uid"), csr.VerdictDeny},
		{"no UIDs", "", false, attest.Check("registry-inventory"), attest.Check("registry-inventory"), csr.VerdictRetry},
		{"no UIDs, insecure", "", true, nil, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			registry := testkit.Must(membership.NewMemoryRegistry(membership.Scope{Cluster: attesttest.ClusterID, Road: attest.RoadEK, IdentityClass: "RSA-2048"}, membership.RegistryOptions{Now: plane.Now}))
			config := plane.Config
			config.Authorizer = testkit.Must(membership.NewFirstUse(membership.FirstUseConfig{Registry: registry, MaxLifetime: 24 * time.Hour, Now: plane.Now,
				InsecureAllowNoMachineUID: c.insecure, NodeExists: func(context.Context, string) (bool, error) { return false, nil }}))
			config.Policy = &csr.Policy{SignerNames: plane.Config.Policy.SignerNames, ClusterIDs: plane.Config.Policy.ClusterIDs,
				Machines: func(_ context.Context, q csr.Question) (*csr.Machine, error) {
					name := q.NodeName
					return &csr.Machine{Name: "machine", UID: c.uid, NodeName: name, BootstrapReady: true}, nil
				}}
			plane.Verifier = testkit.Must(attest.NewVerifier(config))
			if err := joinWithoutID(t, plane, one); c.first == nil && err != nil || !errors.Is(err, c.first) {
				t.Errorf("the first EK: got %v, want %v", err, c.first)
			}
			err := joinWithoutID(t, plane, two)
			if c.second == nil && err != nil || !errors.Is(err, c.second) {
				t.Errorf("the second EK: got %v, want %v", err, c.second)
			}
			if got := csr.Decide(err).Verdict; err != nil && got != c.verdict {
				t.Errorf("the second EK: %v decides %v, want %v", err, got, c.verdict)
			}
		})
	}
}

// joinWithoutID joins with a request that claims no provider ID.
func joinWithoutID(t testing.TB, plane *attesttest.ControlPlane, n *attesttest.Node) (err error) {
	t.Helper()
	n.ProviderID = ""
	n.Subject.Request = testkit.Must(csr.Create(n.Purpose, n.Key, n.Name, csr.CreateOptions{}))
	_, err = plane.Join(t.Context(), n)
	return err
}
