package kube

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestAuthenticatorOwnSigners has a node get all its certificates from our own signers:
// client, attested serving, which a kubelet takes without a restart, and recovery, with
// which it comes back when all else is gone.
func TestAuthenticatorOwnSigners(t *testing.T) {
	t.Parallel()
	kubeletNeeds(t)
	program := buildProgram(t, "kubelet-authenticator")
	c := startCluster(t)
	c.prepare(t)
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	c.startOwnSigners(t, c.ownSigning(t, device, "node-1"))
	m := c.install(t, program, "node-1", device, func(config map[string]any) {
		config["signerName"], config["recoverySigner"] = csr.SignerClientTPM, csr.SignerRecoveryTPM
		config["serving"] = map[string]any{"dnsNames": []any{"node-1"}}
	})
	bootstrap := csr.BootstrapUserPrefix + attesttest.TokenID
	before := c.filedBy(t, bootstrap) // looking whether the admission policy is in force
	daemon := startAs(t, "daemon", program, m.dir, "--config", m.config, "daemon")
	eventually(t, func() error {
		s := m.status(t)
		for _, certificate := range s.Certificates {
			if !certificate.Usable {
				return fmt.Errorf("%+v", certificate)
			}
		}
		return nil
	})
	user := csr.NodeUserPrefix + m.name
	if n, first := c.filedBy(t, user), c.filedBy(t, bootstrap)-before; n != 4 || first != 2 {
		t.Errorf("%d requests as the node and %d with the token, want 4 and 2", n, first)
	}

	t.Run("the kubelet takes a new serving certificate", func(t *testing.T) {
		serving := filepath.Join(m.dir, "state", authenticator.ServingFile)
		_, port := m.startKubelet(t, "serverTLSBootstrap: false\ntlsCertFile: "+serving+"\ntlsPrivateKeyFile: "+serving)
		c.nodeReady(t, m.name)
		served := func() string {
			connection, err := tls.Dial("tcp", net.JoinHostPort("127.0.0.1", port), &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				return err.Error()
			}
			defer connection.Close()
			return csr.CredentialID(connection.ConnectionState().PeerCertificates[0])
		}
		eventually(t, func() error {
			if got, want := served(), m.status(t).Certificates[1].CredentialID; got != want {
				return fmt.Errorf("it serves %s, want %s", got, want)
			}
			return nil
		})
		if _, stderr, err := m.run(t.Context(), "rotate"); err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		next, began := m.status(t).Certificates[1].CredentialID, time.Now()
		eventually(t, func() error {
			if got := served(); got != next {
				return fmt.Errorf("it serves %s, want %s", got, next)
			}
			return nil
		})
		t.Logf("taken after %s", time.Since(began).Round(100*time.Millisecond))
	})

	t.Run("recovery", func(t *testing.T) {
		daemon.stop(t)
		if err := c.admin.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + attesttest.TokenID}}); err != nil {
			t.Fatal(err)
		}
		m.kubeconfig(t, "bootstrap", new(clientcmdapi.AuthInfo))
		state := filepath.Join(m.dir, "state")
		if err := errors.Join(os.Remove(filepath.Join(state, authenticator.ClientFile)), os.RemoveAll(filepath.Join(state, "client.previous.pem"))); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, pair := m.credential(t)
		t.Logf("back after %s", time.Since(began).Round(time.Millisecond))
		if n := c.filedBy(t, csr.RecoveryUserPrefix+m.name); n != 2 || pair.Leaf.Subject.CommonName != user {
			t.Errorf("%d requests under the recovery certificate, for %s", n, pair.Leaf.Subject)
		}
	})
}

// startOwnSigners starts controller and signer, which know machines by their names and sign
// with the cluster's CA.
func (c *cluster) startOwnSigners(t *testing.T, own func(config map[string]any)) []*replica {
	t.Helper()
	controller := c.startController(t, buildProgram(t, "node-attestation-controller"), "controller", own)
	controller.isReady(t)
	signer := c.startProgram(t, buildProgram(t, "node-attestation-signer"), "signer", "signer", own)
	signer.isReady(t)
	return []*replica{controller, signer}
}

// ownSigning prepares the cluster for our own signers, and returns their configuration.
func (c *cluster) ownSigning(t *testing.T, device *tpmsim.TPM, nodeNames ...string) func(config map[string]any) {
	t.Helper()
	c.applyAdmission(t)
	c.apply(t, "signer/rbac.yaml")
	c.knowMachines(t, device, nodeNames...)
	certificate, key := controlplane.Write(t, c.dir, "signer.crt", controlplane.CertificatePEM(c.ca.Cert)), controlplane.Write(t, c.dir, "signer.key", controlplane.PrivatePEM(t, c.ca.Key))
	return func(config map[string]any) {
		config["membership"].(map[string]any)["mode"] = "FirstUse"
		config["signers"] = map[string]any{"names": []any{csr.SignerClientTPM, csr.SignerServingTPM, csr.SignerRecoveryTPM}, "maxLifetime": "1h", "maxRecoveryLifetime": "24h"}
		config["signer"].(map[string]any)["certificateFile"], config["signer"].(map[string]any)["keyFile"] = certificate, key
	}
}

// knowMachines writes the inventory, and the roots of a TPM.
func (c *cluster) knowMachines(t *testing.T, device *tpmsim.TPM, nodeNames ...string) {
	t.Helper()
	c.writeRoots(t, attesttest.NewNode(t, attesttest.NodeOptions{TPM: device, Road: attest.RoadEK, AK: tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP256()}}))
	inventory := "machines:\n"
	for _, name := range nodeNames {
		inventory += "- nodeName: " + name + "\n  dnsNames: [" + name + "]\n"
	}
	controlplane.Write(t, c.dir, "inventory.yaml", []byte(inventory))
}
