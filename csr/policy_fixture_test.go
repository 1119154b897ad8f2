package csr_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
)

// requestFixture is a request that keeps every rule, in the parts that a test
// changes before the policy sees it.
type requestFixture struct {
	builder  *requestBuilder
	provider string // of the bundle
	data     []byte
	request  *csr.Request
	target   string
	policy   *csr.Policy
	machine  *csr.Machine
	records  map[string]*csr.IssuedRecord
	bundle   func(good []byte) []byte // changes the encoded bundle; nil leaves it
}

const (
	goodCluster    = "cluster-a"
	goodNode       = "node-1"
	goodProviderID = "test://zone/instance-1"
	goodMachineUID = "uid-of-machine-1"
	goodNodeUID    = "uid-of-node-1"
	goodCredential = "X509SHA256=0000000000000000000000000000000000000000000000000000000000000001"
)

// goodFixture is a good request for a signer by a class of requester.
func goodFixture(signerName string, class csr.RequesterClass) *requestFixture {
	purpose, err := csr.PurposeOf(signerName)
	if err != nil {
		panic(err)
	}
	cn, o := purpose.SubjectNames(goodNode)
	expiration := int32(3600)
	f := &requestFixture{
		builder: &requestBuilder{rdns: [][]subjectAttribute{{organization(o)}, {commonName(cn)}}, key: p256Key()},
		target:  signerName,
		machine: &csr.Machine{
			Name: "machine-1", UID: goodMachineUID, NodeName: goodNode, NodeUID: goodNodeUID, ProviderID: goodProviderID, BootstrapReady: true,
			DNSNames:    []string{goodNode, "Node-1.Rack.Example"},
			IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")},
		},
		records: map[string]*csr.IssuedRecord{
			goodCredential: {CredentialID: goodCredential, NodeName: goodNode, SignerName: csr.SignerClientTPM},
		},
	}
	if provider := csr.ProviderOf(signerName); provider != "" && provider != csr.ProviderInsecure {
		f.provider, f.data = provider+"/v1", []byte("evidence")
	}
	if purpose == csr.PurposeServing {
		f.builder.extensions = append(f.builder.extensions, sanExtension(dnsSAN(goodNode), ipSAN("192.0.2.7")))
	}
	f.request = &csr.Request{
		Metadata: csr.Metadata{UID: "u"},
		Spec:     csr.Spec{SignerName: signerName, ExpirationSeconds: &expiration, Usages: purpose.Usages(false)},
		User:     csr.User{Extra: map[string][]string{csr.ExtraCredentialID: {goodCredential}}},
	}
	f.ask(class)
	f.policy = &csr.Policy{
		SignerNames: []string{csr.SignerClientTPM, csr.SignerClientInsecure, csr.SignerServingTPM, csr.SignerRecoveryTPM,
			csr.SignerKubeAPIServerClientKubelet, csr.SignerKubeletServing},
		ClusterIDs: []string{goodCluster},
		Now:        func() time.Time { return issueTime },
		Machines: func(_ context.Context, q csr.Question) (*csr.Machine, error) {
			if f.machine == nil || q.NodeName != goodNode {
				return nil, csr.ErrNoMachine
			}
			return f.machine, nil
		},
		IssuedRecord: func(_ context.Context, id string, _ *csr.Request) (*csr.IssuedRecord, error) {
			if r := f.records[id]; r != nil {
				return r, nil
			}
			return nil, csr.ErrNoRecord
		},
	}
	return f
}

// ask makes the requester one of a class.
func (f *requestFixture) ask(class csr.RequesterClass) {
	user := &f.request.User
	switch class {
	case csr.RequesterBootstrap:
		user.Username = csr.BootstrapUserPrefix + "abc123"
		user.Groups = []string{"system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token", "system:authenticated"}
	case csr.RequesterNode:
		user.Username = csr.NodeUserPrefix + goodNode
		user.Groups = []string{"system:nodes", "system:authenticated"}
	case csr.RequesterRecovery:
		user.Username = csr.RecoveryUserPrefix + goodNode
		user.Groups = []string{"nodeattest:recovery", "system:authenticated"}
	}
}

// encode fills in spec.request.
func (f *requestFixture) encode(t testing.TB) {
	t.Helper()
	bundle := csr.Bundle{Request: f.builder.der(t), Provider: f.provider, Data: f.data}
	pem, err := bundle.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if f.bundle != nil {
		pem = f.bundle(pem)
	}
	f.request.Spec.Request = pem
}

// check encodes the request and holds it against the policy.
func (f *requestFixture) check(t testing.TB) (*csr.Checked, error) {
	t.Helper()
	f.encode(t)
	if f.target != f.request.Spec.SignerName {
		checked, err := f.policy.CheckUnsigned(context.Background(), f.request.Parsed(), f.target)
		if err == nil {
			err = checked.CheckSignature()
		}
		return checked, err
	}
	return f.policy.Check(context.Background(), f.request.Parsed())
}

// mustCheck is check for a request that is good.
func (f *requestFixture) mustCheck(t testing.TB) *csr.Checked {
	t.Helper()
	checked, err := f.check(t)
	if err != nil {
		t.Fatal(err)
	}
	return checked
}

// brokenRules lists the rules in an error, each once, in order.
func brokenRules(err error) []csr.Check {
	var violations csr.Errors
	if !errors.As(err, &violations) {
		if one, ok := errors.AsType[*csr.Error](err); ok {
			violations = csr.Errors{one}
		}
	}
	var rules []csr.Check
	for _, v := range violations {
		if !slices.Contains(rules, v.Check) {
			rules = append(rules, v.Check)
		}
	}
	return rules
}
