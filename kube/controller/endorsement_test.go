package controller

import (
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestEndorsementKey has nodes annotate their own requests with an EK: the controller writes the one that
// was verified, with the approval, and removes the annotation from every other request that it decides.
func TestEndorsementKey(t *testing.T) {
	const name, lie = "cluster-x-k8s-io/tpm-endorsement-key", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"
	for _, road := range []attest.Road{attest.RoadEK, attest.RoadAK} {
		t.Run(road.String(), func(t *testing.T) {
			node := attesttest.NewNode(t, attesttest.NodeOptions{Road: road})
			verifier := attesttest.NewControlPlane(t, node).Verifier
			w := newWorld(t, func(c *Config) { c.Providers = Of(verifier) })
			lies := func(r *csr.Request) { r.Metadata.Annotations = map[string]string{name: lie, "a": "b"} }
			want := func(object, ek string) {
				t.Helper()
				if w.annotations["a"] != "b" || w.annotations[name] != ek {
					t.Errorf("%s: annotations %q, want the EK %q and a: b", object, w.annotations, ek)
				}
			}
			hello := w.mustReconcile(w.file("hello", testkit.Must(node.Hello(t.Context(), time.Now())), lies), csr.SignerChallengeTPM)
			want("hello", "")
			answer := testkit.Must(node.Answer(t.Context(), testkit.Must(attest.ChallengeOf(Request(hello))), time.Now()))
			w.mustReconcile(w.file("stolen", answer, func(r *csr.Request) {
				lies(r)
				r.User.Username = csr.BootstrapUserPrefix + "zyxwvu"
			}), csr.SignerClientTPM)
			want("denied answer", "")

			hello = w.mustReconcile(w.file("hello-2", testkit.Must(node.Hello(t.Context(), time.Now())), lies), csr.SignerChallengeTPM)
			answer = testkit.Must(node.Answer(t.Context(), testkit.Must(attest.ChallengeOf(Request(hello))), time.Now()))
			w.mustReconcile(w.file("answer", answer, lies), csr.SignerClientTPM)
			ek := ""
			if road == attest.RoadEK {
				certificate := testkit.Must(tpmcert.ParseEK(testkit.Must(tpmkey.ReadNVCertificate(t.Context(), node.Shared, tpm.EKRSA2048().CertificateIndex))))
				ek = string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: testkit.Must(x509.MarshalPKIXPublicKey(certificate.PublicKey))}))
			}
			want("answer", ek)
			if w.writes["approval"] != 4 || w.writes["status"] != 0 {
				t.Errorf("writes %v, want one for each of 4 requests", w.writes)
			}
		})
	}
}
