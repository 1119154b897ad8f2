package kube

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/kube/signer"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A wrongCertificate is one that must not replace a good one.
type wrongCertificate struct {
	change func(leaf *x509.Certificate)
	by     *controlplane.Authority // nil: the cluster's
	want   string                  // in the error
}

// TestWrongCertificates has a node with a real kubelet that is Ready, and a control plane that
// answers its renewals with wrong certificates: the good one stays, and so does the node. Soon
// after the control plane is sound again there is a new one.
func TestWrongCertificates(t *testing.T) {
	t.Parallel()
	kubeletNeeds(t)
	c := startCluster(t)
	c.prepare(t)
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	sound := c.startOwnSigners(t, c.ownSigning(t, device, "node-1"))[1]
	m := c.install(t, buildProgram(t, "kubelet-authenticator"), "node-1", device, func(config map[string]any) {
		config["signerName"], config["serving"] = csr.SignerClientTPM, map[string]any{"dnsNames": []any{"node-1"}}
	})
	daemon := startAs(t, "daemon", m.program, m.dir, "--config", m.config, "daemon")
	serving := filepath.Join(m.dir, "state", authenticator.ServingFile)
	eventually(t, func() error {
		_, err := os.Stat(serving)
		return err
	})
	m.startKubelet(t, "nodeLeaseDurationSeconds: 4\nserverTLSBootstrap: false\ntlsCertFile: "+serving+"\ntlsPrivateKeyFile: "+serving)
	c.nodeReady(t, m.name)

	foreign := controlplane.NewAuthority(t) // of the same name
	const notKnown = "the new certificate does not work"
	outages := [][]wrongCertificate{{
		{func(*x509.Certificate) {}, foreign, notKnown},
		{func(leaf *x509.Certificate) { leaf.NotAfter = time.Now().AddDate(100, 0, 0) }, foreign, notKnown},
		{func(leaf *x509.Certificate) { leaf.NotAfter = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC) }, foreign, notKnown},
	}, {
		{func(leaf *x509.Certificate) {
			leaf.NotBefore, leaf.NotAfter = time.Now().AddDate(50, 0, 0), time.Now().AddDate(60, 0, 0)
		}, nil, notKnown},
		{func(leaf *x509.Certificate) {
			leaf.IsCA, leaf.BasicConstraintsValid, leaf.KeyUsage = true, true, x509.KeyUsageCertSign
		}, nil, "that is a CA"},
	}, {
		{func(leaf *x509.Certificate) {
			leaf.ExtraExtensions = []pkix.Extension{{Id: []int{1, 2, 3, 4}, Critical: true, Value: []byte{5, 0}}}
		}, nil, "critical extension 1.2.3.4"},
		{func(leaf *x509.Certificate) { leaf.NotAfter = time.Now().Add(4 * time.Second) }, nil, "of the requested 1h0m0s"},
	}}
	if os.Getenv(longVar) != "" { // until the pauses are at their longest
		outages = [][]wrongCertificate{slices.Concat(outages...)}
	}
	for _, wrong := range outages {
		c.testWrong(t, m, daemon, sound, csr.PurposeClient, wrong)
	}
	c.testWrong(t, m, daemon, sound, csr.PurposeServing, []wrongCertificate{
		{func(leaf *x509.Certificate) { leaf.DNSNames = []string{"another.example"} }, nil, "another.example"},
	})

	for _, e := range kubeletRequests(t, c.auditLog) {
		if e.User.Username != csr.NodeUserPrefix+m.name {
			t.Errorf("the kubelet's %s %s as %q: %d", e.Verb, e.RequestURI, e.User.Username, e.ResponseStatus.Code)
		}
	}
}

// testWrong has the signer away, and a certificate renewed meanwhile.
func (c *cluster) testWrong(t *testing.T, m *nodeMachine, daemon *process, sound *replica, purpose csr.Purpose, wrong []wrongCertificate) {
	t.Helper()
	n, file := 0, authenticator.ClientFile
	if purpose == csr.PurposeServing {
		n, file = 1, authenticator.ServingFile
	}
	sound.stop(t)
	store, err := certstore.Open(filepath.Join(m.dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	good := due(t, store, file)
	config := c.user(t, "stranger")
	config.CertData, config.KeyData, config.BearerToken = nil, nil, c.serviceAccountToken(t, namespace, signer.DefaultName)
	for _, w := range wrong {
		before := len(failures(t, daemon))
		name := c.signWrong(t, c.client(t, config), m.status(t).Certificates[n].SignerName, w)
		eventually(t, func() error {
			if len(failures(t, daemon)) == before {
				return errNotYet
			}
			return nil
		})
		if got := failures(t, daemon)[before]; !strings.Contains(got, w.want) {
			t.Errorf("got %s, want %s", got, w.want)
		}
		if now := pair(t, store, file); !bytes.Equal(now.Chain, good.Chain) || !bytes.Equal(now.Key, good.Key) {
			t.Fatalf("%s (%s) is installed", name, w.want)
		}
	}
	c.alive(t, m.name)

	if err := sound.launch(); err != nil {
		t.Fatal(err)
	}
	sound.isReady(t)
	mark := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "sound-", Namespace: metav1.NamespaceDefault}}
	if err := c.admin.Create(t.Context(), mark); err != nil {
		t.Fatal(err)
	}
	var now *certstore.Pair
	eventually(t, func() error {
		if now = pair(t, store, file); bytes.Equal(now.Key, good.Key) {
			return fmt.Errorf("no new certificate: %+v", m.status(t).Certificates[n])
		}
		return nil
	})
	t.Logf("%d wrong %s certificates; %s after the signer was back there is a right one", len(wrong), purpose, now.Received.Sub(mark.CreationTimestamp.Time))
	if now.Received.After(mark.CreationTimestamp.Add(time.Minute)) {
		t.Errorf("a right one came at %s, the signer at %s", now.Received, mark.CreationTimestamp)
	}
	c.alive(t, m.name)
}

// failures are the attempts that the daemon has logged as failed.
func failures(t *testing.T, daemon *process) (lines []string) {
	t.Helper()
	for line := range strings.Lines(daemon.text(t)) {
		if strings.Contains(line, `msg="certificate request failed"`) {
			lines = append(lines, line)
		}
	}
	return lines
}

func pair(t *testing.T, store *certstore.Store, file string) *certstore.Pair {
	t.Helper()
	p, err := store.ReadPair(file)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// due has a stored certificate be due for renewal.
func due(t *testing.T, store *certstore.Store, file string) *certstore.Pair {
	t.Helper()
	l, err := store.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := *pair(t, store, file)
	p.Renew = p.Received
	if err := errors.Join(l.WritePair(file, &p), l.Unlock()); err != nil {
		t.Fatal(err)
	}
	return &p
}

// signWrong waits for an approved request, and puts a wrong certificate into its status.
func (c *cluster) signWrong(t *testing.T, as client.Client, signerName string, w wrongCertificate) (name string) {
	t.Helper()
	var all certificatesv1.CertificateSigningRequestList
	eventually(t, func() error {
		if err := c.admin.List(t.Context(), &all); err != nil {
			return err
		}
		for i := range all.Items {
			o := &all.Items[i]
			if o.Spec.SignerName == signerName && len(o.Status.Certificate) == 0 && len(o.Status.Conditions) == 1 && o.Status.Conditions[0].Type == certificatesv1.CertificateApproved {
				o.Status.Certificate = c.wrong(t, o, w)
				name = o.Name
				return as.Status().Update(t.Context(), o)
			}
		}
		return errNotYet
	})
	return name
}

// wrong is a certificate as the request has it, but for a change.
func (c *cluster) wrong(t *testing.T, o *certificatesv1.CertificateSigningRequest, w wrongCertificate) []byte {
	t.Helper()
	block, _ := pem.Decode(o.Spec.Request)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: request.Subject, DNSNames: request.DNSNames, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(2 * time.Hour)}
	if len(request.DNSNames) != 0 {
		leaf.ExtKeyUsage[0] = x509.ExtKeyUsageServerAuth
	}
	w.change(leaf)
	by := w.by
	if by == nil {
		by = c.ca
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, by.Cert, request.PublicKey, by.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// alive waits until the kubelet has renewed its Lease since now, and the node is Ready.
func (c *cluster) alive(t *testing.T, name string) {
	t.Helper()
	since := time.Now()
	eventually(t, func() error { return c.leaseSince(t, name, since) })
	c.nodeReady(t, name)
}
