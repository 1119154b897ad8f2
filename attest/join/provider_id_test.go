package join_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/join"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestGoogleContradictsProviderID has a machine of Google's join as the node of another, which the
// operator knows by its provider ID in an inventory, or in a list: by its AK's certificate and by its
// EK's. It is refused with both IDs in the error, and joins as the machine that it is. Where trust on
// first use is to decide, Google's profiles are refused unless the projects are named.
func TestGoogleContradictsProviderID(t *testing.T) {
	google, instance := must(tpmsim.NewCA(tpmsim.CAOptions{})), tpmsim.DefaultInstance()
	machine := must(tpmsim.Open(tpmsim.Options{CA: google, Instance: instance}))
	t.Cleanup(func() { _ = machine.Close() })
	roots := []*x509.Certificate{google.Root()}
	ek := must(google.IssueEK(machine.EKPublic(tpmsim.RSA2048), tpmsim.CertificateOptions{Style: tpmsim.StyleGoogle, Instance: instance}))
	caCert, caKey := clusterCA()
	cluster := must(attest.ClusterID(caCert))
	origin := tpm.EKRSA2048()
	own := fmt.Sprintf("gce://%s/%s/%s", instance.ProjectID, instance.Zone, instance.InstanceName)
	sibling := fmt.Sprintf("gce://%s/%s/another", instance.ProjectID, instance.Zone)

	roadAK := func(projects ...string) attest.Kind {
		profile := tpmcert.ProfileGoogle()
		profile.Projects = projects
		return must(tpm.TrustAKs(roots, profile))
	}
	roadEK := func(projects ...string) attest.Kind {
		profile := tpmcert.EKProfileGoogle()
		profile.Projects = projects
		return must(tpm.NewKind(tpm.KindConfig{EKs: must(tpmcert.NewEKVerifier(tpmcert.EKVerifierConfig{Issuers: []tpmcert.EKIssuer{{Roots: roots, Profile: profile}}}))}))
	}
	firstUse := func(scope membership.Scope) func(id string) membership.Members {
		return func(id string) membership.Members {
			scope.Cluster = cluster
			return membership.With(func(context.Context, csr.Question) (*csr.Machine, error) {
				return &csr.Machine{Name: "vm-1", NodeName: "node-1", UID: "uid-1", ProviderID: id, Provider: tpm.Provider, BootstrapReady: true}, nil
			}, must(membership.NewFirstUse(membership.FirstUseConfig{
				Registry:    must(membership.NewMemoryRegistry(scope, membership.RegistryOptions{})),
				MaxLifetime: 24 * time.Hour,
				NodeExists:  func(context.Context, string) (bool, error) { return false, nil },
			})))
		}
	}
	listed := func(id string) membership.Members {
		return must(membership.NewStaticList([]membership.Member{{Machine: attest.Identity(fmt.Sprintf("gce:%s/%d", instance.ProjectID, instance.InstanceID)), NodeName: "node-1", ProviderID: id}}))
	}
	plane := func(kind attest.Kind, members membership.Members) (*join.Plane, error) {
		return join.NewPlane(join.Config{Chain: []*x509.Certificate{caCert}, Key: caKey, Kinds: []attest.Kind{kind}, Members: members})
	}
	proverAK := func() attest.Prover {
		return must(tpm.NewProver(machine, tpm.GCERSA(), tpm.ProverOptions{Intermediates: [][]byte{google.AKIntermediate().Raw}}))
	}
	proverEK := func() attest.Prover {
		return must(tpm.NewProver(machine, tpm.AKSource{Template: tpm.AKTemplateECDSAP256()},
			tpm.ProverOptions{EK: &origin, Certificates: [][]byte{ek.Raw, google.EKIntermediate().Raw}}))
	}
	for name, way := range map[string]struct {
		kind    func(projects ...string) attest.Kind
		members func(id string) membership.Members
		prover  func() attest.Prover
		counts  bool // machines, by trust on first use
	}{
		"an AK, by an inventory": {roadAK, firstUse(membership.Scope{}), proverAK, true},
		"an AK, by a list":       {roadAK, listed, proverAK, false},
		"an EK, by an inventory": {roadEK, firstUse(membership.Scope{Road: attest.RoadEK, IdentityClass: "RSA-2048"}), proverEK, true},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := plane(way.kind(), way.members("")); errors.Is(err, membership.CheckRegistryScope) != way.counts {
				t.Errorf("of every customer: got %v, want a refusal %t", err, way.counts)
			}
			for id, want := range map[string]refusal.Check{
				own: "", "": "", "metal3://ns/vm-1": "",
				sibling: "provider-id-evidence", "gce://my-project/europe-west1-b/vm-1": "provider-id-evidence", "aws:///eu-west-1a/i-1": "provider-id-evidence",
			} {
				for _, claimed := range []string{"", id} {
					p := must(plane(way.kind(instance.ProjectID), way.members(id)))
					node := join.Node{Name: "node-1", ClusterID: cluster, ProviderID: claimed, Key: newKey(), Prover: way.prover()}
					var refused error
					text, err := node.Join(t.Context(), func(ctx context.Context, spec *csr.Spec) (*csr.Request, error) {
						request := csr.Filed(spec, bootstrapper, time.Now())
						reply := p.Handle(ctx, request)
						refused = reply.Err
						request.Status = reply.Status(request)
						return request, nil
					})
					if want != "" {
						if err == nil || refused == nil || !strings.HasPrefix(refused.Error(), string(want)) || !strings.Contains(refused.Error(), own) || !strings.Contains(refused.Error(), id) {
							t.Errorf("%s, claimed %q: got %v, %v, want %s with both IDs", id, claimed, err, refused, want)
						}
						continue
					}
					if err != nil {
						t.Errorf("%s, claimed %q: %v", id, claimed, err)
						continue
					}
					block, _ := pem.Decode(text)
					got, err := oid.ParseProviderID(must(x509.ParseCertificate(block.Bytes)).Extensions)
					if wanted := map[bool]string{true: own, false: id}[id == ""]; err != nil || got != wanted {
						t.Errorf("%s, claimed %q: got a certificate of %q, %v", id, claimed, got, err)
					}
				}
			}
			p := must(plane(way.kind("my-project"), way.members("")))
			node := join.Node{Name: "node-1", ClusterID: cluster, Key: newKey(), Prover: way.prover()}
			if _, err := node.Join(t.Context(), join.InMemory(p, bootstrapper)); err == nil || !strings.Contains(err.Error(), "CertificateProject") {
				t.Errorf("of another project: got %v", err)
			}
		})
	}
}
