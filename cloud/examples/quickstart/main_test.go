package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
)

// The whole story.
func Example() {
	main()
	// Output:
	// node-1 joins by the certificate of its TPM's AK
	//   asserted: gce:example-project/4711000000000000001
	//   certificate for CN=system:node:node-1,O=system:nodes
	//   refused: its evidence, for another key                 binding-request
	//   refused: its evidence, for another node                binding-request
	//   refused: its answer, with another bootstrap token      binding-requester
	//   refused: its answer, in another cluster                binding-cluster
	//   refused: its answer, 11 minutes later                  answer-late
	//   refused: another machine of this kind                  not-a-member
	//   refused: this machine, as another node                 not-a-member
	//   refused: the same machine, by gce                      not-a-member
	//
	// node-2 joins by its TPM's endorsement key
	//   proven: ek:sha256:fd670dd27c4dbd1cdf8fe6d4e9d05f2ace30339fae9cd78a21691bc06ee9180b
	//   certificate for CN=system:node:node-2,O=system:nodes
	//   refused: its evidence, for another key                 binding-request
	//   refused: its evidence, for another node                binding-request
	//   refused: its answer, with another bootstrap token      binding-requester
	//   refused: its answer, in another cluster                binding-cluster
	//   refused: its answer, 11 minutes later                  answer-late
	//   refused: another machine of this kind                  not-a-member
	//   refused: this machine, as another node                 not-a-member
	//
	// node-3 joins by an identity token of Google's
	//   asserted: gce:example-project/4711000000000000002
	//   certificate for CN=system:node:node-3,O=system:nodes
	//   refused: its evidence, for another key                 binding-request
	//   refused: its evidence, for another node                binding-request
	//   refused: its answer, with another bootstrap token      binding-requester
	//   refused: its answer, in another cluster                binding-cluster
	//   refused: its answer, 11 minutes later                  answer-late
	//   refused: another machine of this kind                  not-a-member
	//   refused: this machine, as another node                 not-a-member
	//   refused: the same machine, by tpm                      not-a-member
	//
	// node-4 joins by an attested document of Azure's
	//   asserted: azure:8a205152-b25a-417f-a676-80465535a6c9/b1310a36-d400-46f6-82cb-6217df846586
	//   certificate for CN=system:node:node-4,O=system:nodes
	//   refused: its evidence, for another key                 binding-request
	//   refused: its evidence, for another node                binding-request
	//   refused: its answer, with another bootstrap token      binding-requester
	//   refused: its answer, in another cluster                binding-cluster
	//   refused: its answer, 11 minutes later                  answer-late
	//   refused: another machine of this kind                  not-a-member
	//   refused: this machine, as another node                 not-a-member
	//
	// node-5 joins by an attestation document of its NitroTPM's
	//   asserted: aws:aws/eu-west-1/i-0123456789abcdef0
	//   certificate for CN=system:node:node-5,O=system:nodes
	//   refused: its evidence, for another key                 binding-request
	//   refused: its evidence, for another node                binding-request
	//   refused: its answer, with another bootstrap token      binding-requester
	//   refused: its answer, in another cluster                binding-cluster
	//   refused: its answer, 11 minutes later                  answer-late
	//   refused: another machine of this kind                  not-a-member
	//   refused: this machine, as another node                 not-a-member
	//   refused: the same machine, by ec2                      not-a-member
	//
	// node-6 joins by the attestation key that its maker certified
	//   asserted: chassis:example-oem/Server%201000/EX0001
	//   certificate for CN=system:node:node-6,O=system:nodes
	//   refused: its evidence, for another key                 binding-request
	//   refused: its evidence, for another node                binding-request
	//   refused: its answer, with another bootstrap token      binding-requester
	//   refused: its answer, in another cluster                binding-cluster
	//   refused: its answer, 11 minutes later                  answer-late
	//   refused: another machine of this kind                  not-a-member
	//   refused: this machine, as another node                 not-a-member
	//
	// node-7 joins by an identity document and a request that its role signed
	//   asserted: aws:aws/eu-west-1/i-0123456789abcdef1
	//   certificate for CN=system:node:node-7,O=system:nodes
	//   refused: its evidence, for another key                 binding-request
	//   refused: its evidence, for another node                binding-request
	//   refused: its answer, with another bootstrap token      binding-requester
	//   refused: its answer, in another cluster                binding-cluster
	//   refused: its answer, 11 minutes later                  answer-late
	//   refused: another machine of this kind                  not-a-member
	//   refused: this machine, as another node                 not-a-member
	//
	// 7 machines joined, 52 attacks were refused.
}

// A machine that is known by one kind of evidence is refused by the other that it has,
// under every signer name: that of the kind, that of the other, and Kubernetes' own.
func TestStepDown(t *testing.T) {
	w := newWorld()
	defer w.close()
	plane := newControlPlane(w)
	config := plane.config
	policy := *config.Policy
	policy.SignerNames = append([]string{csr.SignerKubeAPIServerClientKubelet}, policy.SignerNames...)
	config.Policy = &policy
	plane.verifier = must(attest.NewVerifier(config))
	for _, m := range w.machines {
		if m.otherWay == nil {
			continue
		}
		for _, way := range []*machine{m, m.otherWay} {
			own := must(csr.PurposeClient.SignerName(way.provider))
			for _, signer := range []string{own, csr.SignerKubeAPIServerClientKubelet} {
				t.Run(m.nodeName+" by "+way.provider+" under "+strings.ReplaceAll(signer, "/", "_"), func(t *testing.T) {
					answer, err := joinUnder(t.Context(), plane, way, m.nodeName, signer)
					if err == nil {
						_, err = plane.verifier.Verify(t.Context(), answer)
					}
					if way == m && err != nil || way != m && !errors.Is(err, attest.CheckMembership) {
						t.Error(err)
					}
				})
			}
			// Under another kind's signer name the evidence names no machine.
			foreign := must(csr.PurposeClient.SignerName(map[string]string{"tpm": "gce", "gce": "tpm", "nitro": "ec2", "ec2": "nitro"}[way.provider]))
			if _, err := joinUnder(t.Context(), plane, way, m.nodeName, foreign); err == nil {
				t.Errorf("%s by %s under %s: %v", m.nodeName, way.provider, foreign, err)
			}
		}
	}
}

// Trust on first use of documents: the first machine of the project under a name is that
// node, and no process on it gets a second key for a bootstrap token. Where every customer of a
// cloud has documents it is an error of the configuration.
func TestFirstUse(t *testing.T) {
	w := newWorld()
	defer w.close()
	plane := newControlPlane(w)
	byFirstUse := func(provider string) error {
		registry := must(membership.NewMemoryRegistry(membership.Scope{Cluster: "quickstart", Provider: provider, Road: attest.RoadDocument}, membership.RegistryOptions{}))
		config := plane.config
		config.Policy = config.Policy.Clone()
		config.Policy.Machines = func(_ context.Context, q csr.Question) (*csr.Machine, error) { // which knows no machine by its evidence
			return &csr.Machine{Name: q.NodeName, NodeName: q.NodeName, BootstrapReady: true}, nil
		}
		config.Authorizer = must(membership.NewFirstUse(membership.FirstUseConfig{Registry: registry, NodeExists: noNode, MaxLifetime: time.Hour}))
		var err error
		plane.verifier, err = attest.NewVerifier(config)
		return err
	}
	if err := byFirstUse("nitro"); !errors.Is(err, membership.CheckRegistryScope) {
		t.Errorf("of NitroTPMs: %v", err)
	}
	for _, m := range w.machines {
		if m.provider != "gce" && m.provider != "azure" {
			continue
		}
		if err := byFirstUse(m.provider); err != nil {
			t.Fatal(err)
		}
		verify := func(by *machine, nodeName string) (*csr.Request, error) {
			answer := must(join(t.Context(), plane, by, nodeName))
			_, err := plane.verifier.Verify(t.Context(), answer)
			return answer, err
		}
		first := must(verify(m, m.nodeName))
		if _, err := plane.verifier.Verify(t.Context(), first); err != nil {
			t.Errorf("%s, the same answer again: %v", m.provider, err)
		}
		if _, err := verify(m, m.nodeName); !errors.Is(err, attest.Check("registry-requester")) || !errors.Is(err, attest.CheckMembership) {
			t.Errorf("%s, another key: %v", m.provider, err)
		}
		if _, err := verify(m.stranger, m.nodeName); !errors.Is(err, attest.Check("registry-name")) {
			t.Errorf("%s, another machine: %v", m.provider, err)
		}
		if _, err := verify(m, "node-1"); !errors.Is(err, attest.Check("registry-machine")) {
			t.Errorf("%s, another name: %v", m.provider, err)
		}
	}
}

func noNode(context.Context, string) (bool, error) { return false, nil }

func TestRunFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, &bytes.Buffer{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := run(t.Context(), brokenPipe{}); !errors.Is(err, errBroken) {
		t.Error(err)
	}
}

var errBroken = errors.New("broken pipe")

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errBroken }

// An attack that succeeds ends the story.
func TestAttackSucceeds(t *testing.T) {
	w := newWorld()
	defer w.close()
	plane := newControlPlane(w)
	plane.config.Policy = plane.config.Policy.Clone()
	plane.config.Policy.Machines = func(_ context.Context, q csr.Question) (*csr.Machine, error) { // which names no identity
		return &csr.Machine{Name: q.NodeName, NodeName: q.NodeName, BootstrapReady: true}, nil
	}
	plane.config.Authorizer = attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
		return r.InsecureAdmitAnyone(), nil
	})
	plane.verifier = must(attest.NewVerifier(plane.config))
	m := w.machines[0]
	if _, err := tell(t.Context(), &bytes.Buffer{}, plane, m); err == nil || !strings.Contains(err.Error(), "another machine of this kind") {
		t.Error(err)
	}
	if m.provider != tpm.Provider {
		t.Error(m.provider)
	}
}
