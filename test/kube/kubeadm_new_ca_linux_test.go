package kube

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestKubeadmNewCA goes through docs/kubeadm.md from the old CA of a cluster that enforces to the new one alone.
func TestKubeadmNewCA(t *testing.T) {
	t.Parallel()
	w := startWhole(t)
	w.deploy(t, wholeNodes)
	plane := w.planes[0]
	w.migrate(t, plane)
	w.deploy(t, wholeNodes, "enforce")
	enforced := time.Now()
	worker := w.joinWorker(t, "worker-1")
	page := kubeadmPage(t)
	const admin = "export KUBECONFIG=/etc/kubernetes/admin.conf\n"
	all := []*member{plane, worker}
	old := w.ca

	plane.run(t, page.steps(t, "A new CA for the cluster")[0])
	both := page.steps(t, "Both CAs are known")
	plane.run(t, both[0])
	bundle := plane.run(t, "cat /etc/kubernetes/pki/ca.crt")
	worker.put(t, "/etc/kubernetes/pki/ca.crt", 0o644, []byte(bundle))
	for _, m := range all {
		m.run(t, both[1])
	}
	w.published(t, bundle)
	plane.run(t, admin+both[2]+"kubectl -n nodeattest-system rollout status deployment/node-attestation-controller")
	w.renews(t, all, old.Cert)

	signs := page.steps(t, "The new CA signs")
	plane.run(t, signs[0])
	fresh := plane.run(t, "cat /etc/kubernetes/pki-new/ca.crt")
	w.connectAs(t, plane.run(t, "cat /etc/kubernetes/admin.conf"))
	plane.eventually(t, func() error { return w.admin.List(t.Context(), new(corev1.NodeList)) })
	plane.kubeadm(t, "init phase bootstrap-token --config /etc/operator/init.yaml --kubeconfig /etc/kubernetes/admin.conf")
	for _, m := range all {
		m.eventually(t, func() error { return m.command(t.Context(), signs[1]).Run() })
	}
	w.renews(t, all, parseCertificate(t, fresh))

	plane.run(t, page.steps(t, "The old CA leaves")[0])
	worker.put(t, "/etc/kubernetes/pki/ca.crt", 0o644, []byte(fresh))
	worker.run(t, "systemctl restart kubelet")
	w.published(t, fresh)
	w.renews(t, all, parseCertificate(t, fresh))
	w.checkEvidence(t, enforced)

	last := &cluster{ca: old, url: w.url, scheme: w.scheme}
	config := last.user(t, "admin", "system:masters")
	config.CAData = []byte(fresh)
	plane.eventually(t, func() error {
		if err := w.asks(t, config); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("a certificate of the old CA: %w, %w", errNotYet, err)
		}
		return nil
	})
}

// connectAs has the test connect to the cluster with this kubeconfig.
func (w *wholeCluster) connectAs(t *testing.T, kubeconfig string) {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	w.admin = w.client(t, config)
}

func parseCertificate(t *testing.T, text string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		t.Fatalf("no certificate: %s", text)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// asks lists the nodes.
func (w *wholeCluster) asks(t *testing.T, config *rest.Config) error {
	t.Helper()
	as, err := client.New(config, client.Options{Scheme: w.scheme})
	if err != nil {
		return err
	}
	return as.List(t.Context(), new(corev1.NodeList))
}

// published waits until pods get these CAs.
func (w *wholeCluster) published(t *testing.T, bundle string) {
	t.Helper()
	eventually(t, func() error {
		var config corev1.ConfigMap
		if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: "nodeattest-system", Name: "kube-root-ca.crt"}, &config); err != nil {
			return err
		}
		if strings.TrimSpace(config.Data["ca.crt"]) != strings.TrimSpace(bundle) {
			return fmt.Errorf("%w: pods get\n%s", errNotYet, config.Data["ca.crt"])
		}
		return nil
	})
}

// renews has each node get a certificate, which is of this CA, and live by it.
func (w *wholeCluster) renews(t *testing.T, all []*member, ca *x509.Certificate) {
	t.Helper()
	for _, m := range all {
		began := time.Now()
		m.eventually(t, func() error { return m.command(t.Context(), "kubelet-authenticator rotate").Run() })
		leaf := parseCertificate(t, m.run(t, "openssl x509 -in /var/lib/kubelet-authenticator/client.pem"))
		if err := leaf.CheckSignatureFrom(ca); err != nil {
			t.Errorf("%s has a certificate of another CA: %v", m.name, err)
		}
		m.alive(t, began)
	}
	w.ready(t, all[0].name, all[1].name)
}
