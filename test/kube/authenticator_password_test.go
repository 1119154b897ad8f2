package kube

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// managed has the program keep the endorsement password in a file.
func managed(file string) func(config map[string]any) {
	return func(config map[string]any) {
		evidence := config["evidence"].(map[string]any)["tpm"].(map[string]any)
		evidence["endorsementPassword"], evidence["endorsementPasswordFile"] = "managed", file
	}
}

// testManagedPassword has a machine of a CA join whose endorsement hierarchy gets a password from
// the program. It renews across a reset of the TPM. Who can open the device and read the bootstrap
// token, but not the password's file, can neither make the attestation key nor, with a key of
// another hierarchy, open a challenge.
func (c *cluster) testManagedPassword(t *testing.T, program string, ca *tpmsim.CA) {
	const thiefsKey = 0x81020000
	device := tpmsim.Swtpm(t, tpmsim.Options{CA: ca, PersistEKs: true})
	tpmlab.Persist(t, device, tpm2.TPMRHOwner, tpmkind.AKTemplateECDSAP256(), thiefsKey)
	file := filepath.Join(t.TempDir(), "tpm", "password")
	const name = "node-5"
	m := c.install(t, program, name, device, managed(file))
	c.joinsAndRenews(t, m)
	if err := device.Reset(); err != nil {
		t.Fatal(err)
	}
	if stdout, stderr, err := m.run(t.Context(), "rotate"); err != nil {
		t.Errorf("after a reset: %v: %s%s", err, stdout, stderr)
	}
	if stdout, stderr, err := m.run(t.Context(), "status"); err != nil || !strings.Contains(stdout, "endorsement password: set, in "+file) {
		t.Errorf("%v: %s%s", err, stdout, stderr)
	}
	for thief, row := range map[string]struct {
		change func(config map[string]any)
		want   string
	}{
		"without a password":    {nil, "the endorsement hierarchy has a password and none was given"},
		"with another password": {managed(controlplane.Write(t, t.TempDir(), "password", []byte(strings.Repeat("p", 32)+"\n"))), "it was set elsewhere"},
		"without the file":      {managed(filepath.Join(t.TempDir(), "password")), "there is no file: an operator puts the file of this TPM back, or clears the TPM"},
	} {
		if got := c.install(t, program, name, device, row.change).refused(t); !strings.Contains(got, row.want) {
			t.Errorf("%s: got %s, want %q", thief, got, row.want)
		}
	}
	id := c.clusterID(t)
	thief := attesttest.NewNode(t, attesttest.NodeOptions{Name: name, TPM: device, Road: attest.RoadEK, ClusterID: id, AK: tpmkind.AKSource{Handle: thiefsKey}, ExpirationSeconds: 3600,
		EK: tpmkind.EKOrigin{Handle: 0x81010001, CertificateIndex: tpmkind.EKRSA2048().CertificateIndex}})
	thief.Subject.SignerName = csr.SignerKubeAPIServerClientKubelet
	challenge, err := challenged(t, c.client(t, c.bearer(t, attesttest.TokenID)), thief)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := thief.Attester.Answer(t.Context(), challenge, thief.Certified, thief.Subject); !errors.Is(err, tpmkind.ErrHierarchyPassword) {
		t.Errorf("a challenge for a key of his own: got %v, want %v", err, tpmkind.ErrHierarchyPassword)
	}
}
