package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// attackWithEvidence is what somebody may try who has read node-1's answer.
func attackWithEvidence(ctx context.Context, s *story, plane *controlPlane, answer *csr.Request) error {
	if err := flipEveryByte(ctx, s, plane, answer); err != nil {
		return err
	}
	bundle, err := csr.Parse(answer.Spec.Request)
	if err != nil {
		return err
	}
	otherKey, err := stolen(bundle, "node-1")
	if err != nil {
		return err
	}
	otherNode, err := stolen(bundle, "node-2")
	if err != nil {
		return err
	}
	plain, err := file((&csr.Bundle{Request: bundle.Request}).Spec(csr.SignerClientTPM, 0))
	if err != nil {
		return err
	}
	otherUser := *answer
	otherUser.Spec.Username = csr.BootstrapUserPrefix + "zyxwvu"

	// A replica whose clock is 11 minutes ahead: it shares the key ring, and that is
	// all that it needs.
	config := plane.config
	config.Now = func() time.Time { return time.Now().Add(window + time.Minute) }
	replica, err := attest.NewVerifier(config)
	if err != nil {
		return err
	}
	late := *answer
	late.Metadata.CreationTimestamp = config.Now()

	s.start()
	for _, attack := range []struct {
		name    string
		by      *attest.Verifier
		request *csr.Request
		want    refusal.Check
	}{
		{"the same evidence for another key", plane.verifier, otherKey, attest.CheckBindingRequest},
		{"the same evidence for another node, node-2", plane.verifier, otherNode, attest.CheckBindingRequest},
		{"the answer, filed with another bootstrap token", plane.verifier, &otherUser, attest.CheckBindingRequester},
		{"the answer, filed 11 minutes later", replica, &late, attest.CheckAnswerLate},
		{"the request without any evidence", plane.verifier, plain, csr.CheckAttestationProvider},
	} {
		_, err := attack.by.Verify(ctx, attack.request)
		if err := s.refusal(attack.name, err, attack.want); err != nil {
			return err
		}
	}
	return nil
}

// flipEveryByte changes each byte of what the node filed, one at a time: headings,
// request, statement, binding, certificates.
func flipEveryByte(ctx context.Context, s *story, plane *controlPlane, answer *csr.Request) error {
	tampered := *answer
	checks := map[refusal.Check]bool{}
	for i := range answer.Spec.Request {
		tampered.Spec.Request = bytes.Clone(answer.Spec.Request)
		tampered.Spec.Request[i] ^= 1
		_, err := plane.verifier.Verify(ctx, &tampered)
		if decision := csr.Decide(err); decision.Verdict != csr.VerdictDeny {
			return fmt.Errorf("byte %d of the answer was changed: got the verdict %s, want a refusal", i, decision.Verdict)
		}
		check, _ := errors.AsType[refusal.Check](err)
		checks[check] = true
	}
	s.step(fmt.Sprintf("REFUSED  one byte changed, for each of the answer's %d bytes", len(answer.Spec.Request)),
		"checks", fmt.Sprintf("%d different ones", len(checks)))
	s.refused++
	return nil
}

// stolen is a thief's request for a node's name, with a key of the thief's and
// somebody else's evidence.
func stolen(evidence *csr.Bundle, nodeName string) (*csr.Request, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	request, err := csr.Create(csr.PurposeClient, key, nodeName, csr.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return file((&csr.Bundle{Request: request, Provider: evidence.Provider, Data: evidence.Data}).Spec(csr.SignerClientTPM, 0))
}

// attackWithTPM asks for a challenge with a TPM, truthfully, and must not get one.
func attackWithTPM(ctx context.Context, s *story, plane *controlPlane, name string, simulated *tpmsim.TPM, nodeName string, want refusal.Check) error {
	n, err := newNode(simulated, nodeName, plane.clusterID)
	if err != nil {
		return err
	}
	hello, err := n.hello(ctx)
	if err != nil {
		return err
	}
	s.start()
	_, err = plane.verifier.Challenge(ctx, hello)
	return s.refusal(name, err, want)
}

// attackWithOtherTPMs tries TPMs that are not node-1's.
func attackWithOtherTPMs(ctx context.Context, s *story, plane *controlPlane, cloud *tpmsim.CA) error {
	for _, attack := range []struct {
		name string
		tpm  tpmsim.Options // CA nil: one of its own
		want refusal.Check
	}{
		{"a stranger's TPM, whose own CA says that it is node-1's", tpmsim.Options{Instance: instance(1)}, tpmcert.CheckCertificateChain},
		{"another customer's TPM, certified by the same cloud", tpmsim.Options{CA: cloud, Instance: instance(666)}, attest.CheckMembership},
	} {
		simulated, err := tpmsim.Open(attack.tpm)
		if err != nil {
			return err
		}
		err = attackWithTPM(ctx, s, plane, attack.name, simulated, "node-1", attack.want)
		if err := errors.Join(err, simulated.Close()); err != nil {
			return err
		}
	}
	return nil
}
