package main

import (
	"context"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// attack is one try of an attacker who has read a machine's answer, or has another machine.
type attack struct {
	name string
	want refusal.Check
	try  func(ctx context.Context) error
}

// attacksOn lists the attacks on one machine.
func attacksOn(plane *controlPlane, m *machine, answer *csr.Request) []attack {
	bundle := must(csr.Parse(answer.Spec.Request))
	otherKey := stolen(answer, bundle, m.nodeName)
	otherName := "node-1"
	if m.nodeName == otherName {
		otherName = "node-2"
	}
	otherNode := stolen(answer, bundle, otherName)
	otherUser := *answer
	otherUser.User.Username = csr.BootstrapUserPrefix + "zyxwvu"
	late := *answer
	late.Metadata.CreationTimestamp = answer.Metadata.CreationTimestamp.Add(11 * time.Minute)

	verify := func(r *csr.Request) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := plane.verifier.Verify(ctx, r)
			return err
		}
	}
	elsewhere := func(r *csr.Request, change func(*attest.VerifierConfig)) func(context.Context) error {
		return func(ctx context.Context) error {
			config := plane.config // it shares the key ring
			change(&config)
			_, err := must(attest.NewVerifier(config)).Verify(ctx, r)
			return err
		}
	}
	otherCluster := func(c *attest.VerifierConfig) {
		c.Policy = c.Policy.Clone()
		c.Policy.ClusterIDs = []string{"another"}
	}
	later := func(c *attest.VerifierConfig) { c.Now = func() time.Time { return time.Now().Add(11 * time.Minute) } }
	joins := func(by *machine, nodeName string) func(context.Context) error {
		return func(ctx context.Context) error {
			answer, err := join(ctx, plane, by, nodeName)
			if err != nil {
				return err
			}
			_, err = plane.verifier.Verify(ctx, answer)
			return err
		}
	}
	attacks := []attack{
		{"its evidence, for another key", attest.CheckBindingRequest, verify(otherKey)},
		{"its evidence, for another node", attest.CheckBindingRequest, verify(otherNode)},
		{"its answer, with another bootstrap token", attest.CheckBindingRequester, verify(&otherUser)},
		{"its answer, in another cluster", attest.CheckBindingCluster, elsewhere(answer, otherCluster)},
		{"its answer, 11 minutes later", attest.CheckAnswerLate, elsewhere(&late, later)},
		{"another machine of this kind", attest.CheckMembership, joins(m.stranger, m.nodeName)},
		{"this machine, as another node", attest.CheckMembership, joins(m, otherName)},
	}
	if m.otherWay != nil {
		attacks = append(attacks, attack{"the same machine, by " + m.otherWay.provider, attest.CheckMembership, joins(m.otherWay, m.nodeName)})
	}
	return attacks
}

// stolen is a thief's request for a node's name, with the thief's own key and someone else's
// evidence.
func stolen(answer *csr.Request, evidence *csr.Bundle, nodeName string) *csr.Request {
	key := newKey()
	request := must(csr.Create(csr.PurposeClient, key, nodeName, csr.CreateOptions{}))
	bundle := &csr.Bundle{Request: request, Provider: evidence.Provider, Data: evidence.Data}
	return file(must(bundle.Spec(answer.Spec.SignerName, lifetime)))
}
