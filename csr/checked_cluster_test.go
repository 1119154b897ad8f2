package csr_test

import (
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestClusterIDs: a policy and a CA are for a cluster with a name of its own, under the same
// rules.
func TestClusterIDs(t *testing.T) {
	long := strings.Repeat("a", 128)
	for name, c := range map[string]struct {
		ids  []string
		want string // a part of the error; "" if they are taken
	}{
		"one":                      {[]string{goodCluster}, ""},
		"two":                      {[]string{"old", goodCluster}, ""},
		"one byte":                 {[]string{"a"}, ""},
		"the longest":              {[]string{long}, ""},
		"the longest in UTF-8":     {[]string{strings.Repeat("ä", 64)}, ""},
		"begins like a common one": {[]string{"kubernetes-1"}, ""},
		"a domain of its own":      {[]string{"a.cluster.local"}, ""},
		"none":                     {nil, "at least one"},
		"an empty list":            {[]string{}, "at least one"},
		"empty":                    {[]string{""}, "UTF-8 of 1 to 128 bytes"},
		"empty and another":        {[]string{goodCluster, ""}, "UTF-8 of 1 to 128 bytes"},
		"too long":                 {[]string{long + "a"}, "UTF-8 of 1 to 128 bytes"},
		"too long in UTF-8":        {[]string{strings.Repeat("ä", 64) + "a"}, "UTF-8 of 1 to 128 bytes"},
		"no UTF-8":                 {[]string{"a\xff"}, "UTF-8"},
		"kubeadm's":                {[]string{"kubernetes"}, "kubernetes, which tools give to every cluster"},
		"kubeadm's and another":    {[]string{goodCluster, "kubernetes"}, "kubernetes, which tools give to every cluster"},
		"kubeadm's in capitals":    {[]string{"Kubernetes"}, "Kubernetes, which tools give to every cluster"},
		"kind's":                   {[]string{"kind"}, "tools give"},
		"minikube's":               {[]string{"minikube"}, "tools give"},
		"k3s's":                    {[]string{"default"}, "tools give"},
		"a client's":               {[]string{"cluster"}, "tools give"},
		"local":                    {[]string{"local"}, "tools give"},
		"the DNS domain":           {[]string{"cluster.local"}, "tools give"},
	} {
		t.Run(name, func(t *testing.T) {
			f, opts := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap), goodOptions()
			f.policy.ClusterIDs, opts.ClusterIDs = c.ids, c.ids
			_, made := csr.NewCA([]*x509.Certificate{makeCA(t, caTemplate("CA"), p256Key(), nil, nil)}, p256Key(), opts)
			_, checked := f.check(t)
			for what, err := range map[string]error{"Validate": f.policy.Validate(), "Check": checked, "NewCA": made} {
				if (err == nil) != (c.want == "") {
					t.Errorf("%s: got %v, want %q", what, err, c.want)
				}
				if err != nil && (!errors.Is(err, refusal.CheckConfig) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "ClusterIDs")) {
					t.Errorf("%s: got %v, want %q", what, err, c.want)
				}
			}
		})
	}
}

// TestCAKeepsItsClusterIDs: the list that it was made from may change.
func TestCAKeepsItsClusterIDs(t *testing.T) {
	opts := goodOptions()
	ca := newCA(t, opts)
	opts.ClusterIDs[0] = "cluster-b"
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.policy.ClusterIDs = []string{"cluster-b"}
	if _, err := ca.Issue(t.Context(), goodVerified(f.mustCheck(t))); !slices.Equal(brokenRules(err), rules("verified-cluster")) {
		t.Errorf("got %v", err)
	}
}
