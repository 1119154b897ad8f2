package controller

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"slices"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/internal/requests"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestObserve has a reconciler that observes refuse bad evidence alone: it reports every other refusal
// and leaves the request to others.
func TestObserve(t *testing.T) {
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	pkcs10 := testkit.Must(csr.Create(csr.PurposeClient, key, "node-7", csr.CreateOptions{}))
	bundle := func(b *csr.Bundle) []byte {
		spec := testkit.Must(b.Spec(builtIn, 3600))
		return spec.Request
	}
	plain := pem.EncodeToMemory(&pem.Block{Type: csr.BlockRequest, Bytes: pkcs10})
	broken := slices.Concat(plain, []byte("KUBELET AUTHENTICATOR ATTESTATION DATA\n"))
	evidence := bundle(&csr.Bundle{Request: pkcs10, Provider: "tpm/v1", Data: []byte("evidence")})
	denied := &csr.Error{Check: csr.CheckMachineUnknown, Got: "none"}
	glass := func(o *certificatesv1.CertificateSigningRequest) {
		o.Annotations = map[string]string{requests.BreakGlass: "the TPM is broken"}
	}
	auto := func(o *certificatesv1.CertificateSigningRequest) {
		glass(o)
		approvedBy(o)
		o.Status.Conditions[0].Reason = "AutoApproved"
	}
	for name, row := range map[string]struct {
		request   []byte
		signer    string // empty: Kubernetes' own
		observe   bool
		admit     bool
		approved  bool // by another approver
		change    func(o *certificatesv1.CertificateSigningRequest)
		writes    int
		told      string
		condition certificatesv1.RequestConditionType
	}{
		"plain, enforced":                       {request: plain, writes: 1, condition: certificatesv1.CertificateDenied},
		"plain, observed":                       {request: plain, observe: true, told: "node-7 deny"},
		"plain and approved, enforced":          {request: plain, approved: true, writes: 1, condition: certificatesv1.CertificateFailed},
		"plain and approved, observed":          {request: plain, approved: true, observe: true, told: "node-7 fail", condition: certificatesv1.CertificateApproved},
		"a request that cannot be read":         {request: broken, observe: true, told: " deny"},
		"evidence, observed":                    {request: evidence, observe: true, writes: 1, condition: certificatesv1.CertificateDenied},
		"evidence that is good":                 {request: evidence, observe: true, admit: true, writes: 1, told: "node-1 approve", condition: certificatesv1.CertificateApproved},
		"a hello without evidence":              {request: plain, signer: csr.SignerChallengeTPM, observe: true, writes: 1, condition: certificatesv1.CertificateDenied},
		"the glass is broken":                   {request: plain, approved: true, change: glass, condition: certificatesv1.CertificateApproved},
		"the glass is broken without approval":  {request: plain, change: glass},
		"the glass is broken, with evidence":    {request: evidence, change: glass, admit: true, writes: 1, condition: certificatesv1.CertificateApproved},
		"the glass is broken automatically":     {request: plain, change: auto, writes: 1, condition: certificatesv1.CertificateFailed},
		"the glass is broken where it observes": {request: plain, approved: true, change: glass, observe: true, condition: certificatesv1.CertificateApproved},
	} {
		t.Run(name, func(t *testing.T) {
			var told string
			w := newWorld(t, func(c *Config) {
				if row.observe {
					c.Observe = func(_ *csr.Request, nodeName string, d csr.Decision) { told += nodeName + " " + d.Verdict.String() }
				}
			})
			if !row.admit {
				w.providers.verify = refuse(denied)
				w.providers.challenge = func() ([]byte, error) { return nil, denied }
			}
			if row.signer == "" {
				row.signer = builtIn
			}
			w.create("r", row.signer, func(o *certificatesv1.CertificateSigningRequest) {
				o.Spec.Request = row.request
				if row.approved {
					approvedBy(o)
				}
				if row.change != nil {
					row.change(o)
				}
			})
			w.mustReconcile("r", row.signer)
			o := w.mustReconcile("r", row.signer) // which decides nothing again
			var condition certificatesv1.RequestConditionType
			if n := len(o.Status.Conditions); n != 0 {
				condition = o.Status.Conditions[n-1].Type
			}
			if writes := w.writes["approval"] + w.writes["status"]; writes != row.writes || told != row.told || condition != row.condition {
				t.Errorf("%d writes, told %q, condition %q; want %d, %q, %q", writes, told, condition, row.writes, row.told, row.condition)
			}
		})
	}
}

// TestBreakGlass leaves a request alone until it is approved, and then if that is not automatic.
func TestBreakGlass(t *testing.T) {
	for reason, want := range map[string]int{"ByHand": 0, "AutoApproved": 1} {
		w := newWorld(t, nil)
		w.providers.verify = refuse(&csr.Error{Check: csr.CheckMachineUnknown, Got: "none"})
		w.create("r", builtIn, func(o *certificatesv1.CertificateSigningRequest) {
			o.Annotations = map[string]string{requests.BreakGlass: "the TPM is broken"}
		})
		o := w.mustReconcile("r", builtIn)
		if len(o.Status.Conditions) != 0 {
			t.Fatalf("pending, it is decided: %+v", o.Status.Conditions)
		}
		approvedBy(o)
		o.Status.Conditions[0].Reason = reason
		testkit.MustDo(w.api.SubResource("approval").Update(t.Context(), o))
		w.mustReconcile("r", builtIn)
		if w.writes["status"] != want {
			t.Errorf("%s: %d writes of the status, want %d", reason, w.writes["status"], want)
		}
	}
}

// TestObserveTries tells nothing of what cannot be decided yet.
func TestObserveTries(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.Observe = func(_ *csr.Request, _ string, d csr.Decision) { t.Errorf("told %v", d) }
	})
	w.providers.verify = refuse(refusal.ErrRetry)
	w.create("r", builtIn, nil)
	if _, err := w.reconcile("r", builtIn); err == nil {
		t.Error("it is decided")
	}
}

// TestObserveSigned is told of a certificate that others have approved: it is no alarm.
func TestObserveSigned(t *testing.T) {
	var told []string
	w := newWorld(t, func(c *Config) {
		c.Registry = oneRecord{record: &membership.Record{State: membership.StateBound}}
		c.Observe = func(_ *csr.Request, nodeName string, d csr.Decision) { told = append(told, nodeName+" "+d.Reason) }
	})
	w.create("r", builtIn, signed(t, w.now.Add(time.Hour)))
	w.mustReconcile("r", builtIn)
	if !slices.Equal(told, []string{"node-1 " + reasonUnattested}) || len(w.events.notes) != 0 {
		t.Errorf("told %q, Events %q", told, w.events.notes)
	}
}
