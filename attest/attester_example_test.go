package attest_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// The control plane's side: a verifier made once, a challenge for each hello, a
// verification for each answer. The node's side runs on package attesttest here.
func ExampleVerifier() {
	ctx := context.Background()
	node, err := attesttest.OpenNode(attesttest.NodeOptions{}) // a simulated machine whose AK has a certificate
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = node.Close() }()
	ak := sha256.Sum256(node.TPM.AKCertificate(tpmsim.RSA2048).RawSubjectPublicKeyInfo)
	expected := attest.Identity(fmt.Sprintf("ak:sha256:%x", ak)) // from the inventory

	ring, err := attest.NewStaticKeyRing(attest.NewRingKey(time.Now()))
	if err != nil {
		fmt.Println(err)
		return
	}
	kind, err := tpm.TrustAKs(node.Roots(), tpmcert.ProfileTCG())
	if err != nil {
		fmt.Println(err)
		return
	}
	verifier, err := attest.NewVerifier(attest.VerifierConfig{
		KeyRing: ring,
		Kinds:   []attest.Kind{kind},
		Policy: &csr.Policy{
			ClusterIDs:  []string{attesttest.ClusterID},
			SignerNames: []string{csr.SignerClientTPM},
			Machines: func(_ context.Context, q csr.Question) (*csr.Machine, error) {
				if q.NodeName != "node-1" {
					return nil, csr.ErrNoMachine
				}
				return &csr.Machine{Name: "rack 3, board 7", BootstrapReady: true}, nil
			},
		},
		Authorizer: attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
			if r.Machine != expected {
				return nil, attest.NotMember("machine " + string(r.Machine) + " is not that of node-1")
			}
			a := r.Admit("node-1")
			a.ProviderID = "sim://attesttest/node-1"
			return a, nil
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	hello, err := node.Hello(ctx, time.Now()) // filed under csr.SignerChallengeTPM
	if err != nil {
		fmt.Println(err)
		return
	}
	challenge, err := verifier.Challenge(ctx, hello)
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := node.Answer(ctx, challenge, time.Now()) // filed under csr.SignerClientTPM
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := verifier.Verify(ctx, answer)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.NodeName, result.Machine.Kind(), result.Granted.ProviderID)
	for _, fact := range result.Facts() {
		fmt.Println(fact.Standing, fact.Name)
	}
	// Output:
	// node-1 ak sim://attesttest/node-1
	// asserted machine
	// asserted restricted AK in a TPM
	// asserted TPM model
	// proven challenge
	// proven request
	// asserted key residence
	// vouched node
	// vouched provider ID
}

// Challenge keys are rotated so that no replica ever meets a key that it has not
// read, and none is retired while answers to its challenges may come.
func ExampleRotateKeys() {
	now := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	keys, _ := attest.RotateKeys([]attest.RingKey{attest.NewRingKey(now.Add(-24 * time.Hour))}, now, 24*time.Hour)
	fmt.Println("successor active", keys[1].ActiveAt.Format(time.TimeOnly))
	fmt.Println("old one retired", keys[0].RetiredAt.Format(time.TimeOnly))
	fmt.Println(keys[1].Secret)
	// Output:
	// successor active 15:02:00
	// old one retired 17:02:00
	// [secret]
}

// On Kubernetes a challenge is the message of a Denied condition.
func ExampleChallengeOf() {
	decision := attest.ChallengeDecision([]byte{0x30, 0x00}, nil)
	hello := &csr.Request{Status: csr.Status{Conditions: []csr.Condition{
		{Type: csr.ConditionDenied, Status: "True", Reason: decision.Reason, Message: decision.Message}}}}
	challenge, err := attest.ChallengeOf(hello)
	fmt.Println(decision.Reason, decision.Message, challenge, err)
	_, err = attest.ChallengeOf(&csr.Request{})
	fmt.Println(errors.Is(err, refusal.ErrRetry))
	// Output:
	// AttestationChallenge MAA= [48 0] <nil>
	// true
}
