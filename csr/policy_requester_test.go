package csr_test

import (
	"slices"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
)

// Who may ask for what: every class with every signer.
func TestPolicyRequesterAndPurpose(t *testing.T) {
	signers := []string{csr.SignerClientTPM, csr.SignerKubeAPIServerClientKubelet, csr.SignerServingTPM,
		csr.SignerKubeletServing, csr.SignerRecoveryTPM, csr.SignerClientInsecure}
	allowed := map[csr.RequesterClass][]string{
		csr.RequesterBootstrap: {csr.SignerClientTPM, csr.SignerKubeAPIServerClientKubelet, csr.SignerClientInsecure},
		csr.RequesterNode: {csr.SignerClientTPM, csr.SignerKubeAPIServerClientKubelet, csr.SignerServingTPM,
			csr.SignerKubeletServing, csr.SignerRecoveryTPM},
		csr.RequesterRecovery: {csr.SignerClientTPM, csr.SignerKubeAPIServerClientKubelet},
	}
	for class, may := range allowed {
		for _, signer := range signers {
			var want []csr.Check
			if !slices.Contains(may, signer) {
				want = rules(csr.CheckRequesterPurpose)
			}
			f := goodFixture(signer, class)
			checked, err := f.check(t)
			if got := brokenRules(err); !slices.Equal(got, want) || (err == nil) != (want == nil) {
				t.Errorf("%v asks %s: broken %q, want %q", class, signer, got, want)
			}
			if err == nil && checked.Requester().Class != class {
				t.Errorf("%v asks %s: checked as %v", class, signer, checked.Requester().Class)
			}
		}
	}
}

func TestPolicyRulesOfRequesters(t *testing.T) {
	user := func(name string) func(*requestFixture) {
		return func(f *requestFixture) { f.request.User.Username = name }
	}
	groups := func(g ...string) func(*requestFixture) {
		return func(f *requestFixture) { f.request.User.Groups = g }
	}
	t.Run("bootstrap", func(t *testing.T) {
		runRuleCases(t, csr.SignerClientTPM, csr.RequesterBootstrap, []ruleCase{
			{"no user", user(""), rules(csr.CheckRequestUsername)},
			{"an administrator", user("kubernetes-admin"), rules(csr.CheckRequestUsername)},
			{"a service account", user("system:serviceaccount:kube-system:x"), rules(csr.CheckRequestUsername)},
			{"short token id", user("system:bootstrap:abc12"), rules(csr.CheckRequestUsername)},
			{"long token id", user("system:bootstrap:abc1234"), rules(csr.CheckRequestUsername)},
			{"token id in upper case", user("system:bootstrap:ABC123"), rules(csr.CheckRequestUsername)},
			{"the proposal's plural", user("system:nodes:node-1"), rules(csr.CheckRequestUsername)},
			{"only the groups needed", groups("system:authenticated", "system:bootstrappers"), nil},
			{"no groups", groups(), rules(csr.CheckRequestGroups)},
			{"not authenticated", groups("system:bootstrappers"), rules(csr.CheckRequestGroups)},
			{"not a bootstrapper", groups("system:bootstrappers:x", "system:authenticated"), rules(csr.CheckRequestGroups)},
			{"also a node", groups("system:bootstrappers", "system:nodes", "system:authenticated"), rules(csr.CheckRequestGroups)},
			{"also a master", groups("system:bootstrappers", "system:masters", "system:authenticated"), rules(csr.CheckRequestGroups)},
			{"group that begins alike", groups("system:bootstrappers", "system:bootstrappersX", "system:authenticated"), rules(csr.CheckRequestGroups)},
			{"a token for this node", groups("system:bootstrappers", "system:bootstrappers:nodeattest:node:node-1", "system:authenticated", "system:bootstrappers:x"), nil},
			{"a token for another node", groups("system:bootstrappers", "system:bootstrappers:nodeattest:node:node-2", "system:authenticated"), rules(csr.CheckRequesterOtherNode)},
			{"a token for a node of a longer name", groups("system:bootstrappers", "system:bootstrappers:nodeattest:node:node-1:example", "system:authenticated"), rules(csr.CheckRequesterOtherNode)},
			{"a token for no name", groups("system:bootstrappers", "system:bootstrappers:nodeattest:node:node-", "system:authenticated"), rules(csr.CheckRequestGroups)},
			{"a token for two nodes", groups("system:bootstrappers", "system:bootstrappers:nodeattest:node:node-1", "system:bootstrappers:nodeattest:node:node-2", "system:authenticated"),
				rules(csr.CheckRequestGroups)},
		})
	})
	t.Run("node", func(t *testing.T) {
		runRuleCases(t, csr.SignerClientTPM, csr.RequesterNode, []ruleCase{
			{"another node", user("system:node:node-2"), rules(csr.CheckRequesterOtherNode)},
			{"no node name", user("system:node:"), rules(csr.CheckRequestUsername)},
			{"node name in upper case", user("system:node:NODE-1"), rules(csr.CheckRequestUsername)},
			{"not in the group", groups("system:authenticated"), rules(csr.CheckRequestGroups)},
			{"recovery's group", groups("nodeattest:recovery", "system:authenticated"), rules(csr.CheckRequestGroups)},
			{"a group of bootstrappers", groups("system:nodes", "system:authenticated", "system:bootstrappers:x"), rules(csr.CheckRequestGroups)},
			{"one group more", groups("system:nodes", "system:authenticated", "x"), rules(csr.CheckRequestGroups)},
			{"a master", groups("system:nodes", "system:authenticated", "system:masters"), rules(csr.CheckRequestGroups)},
		})
	})
	t.Run("recovery", func(t *testing.T) {
		runRuleCases(t, csr.SignerClientTPM, csr.RequesterRecovery, []ruleCase{
			{"another node", user("nodeattest:recovery:node-2"), rules(csr.CheckRequesterOtherNode)},
			{"no node name", user("nodeattest:recovery:"), rules(csr.CheckRequestUsername)},
			{"nodes' group", groups("system:nodes", "system:authenticated"), rules(csr.CheckRequestGroups)},
			{"not authenticated", groups("nodeattest:recovery"), rules(csr.CheckRequestGroups)},
		})
	})
}
