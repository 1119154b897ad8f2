package csr_test

import (
	"context"
	"crypto"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/netip"
	"slices"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

// keyAlone is a public key that signs nonsense: its request is checked unsigned.
type keyAlone struct{ crypto.PublicKey }

func (k keyAlone) Public() crypto.PublicKey { return k.PublicKey }

func (keyAlone) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	return make([]byte, 256), nil
}

// rsaOf is an RSA key with a modulus of so many bits.
func rsaOf(bits, exponent int, even bool) keyAlone {
	n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
	if !even {
		n.SetBit(n, 0, 1)
	}
	return keyAlone{&rsa.PublicKey{N: n, E: exponent}}
}

func TestPolicyRSAKeys(t *testing.T) {
	for name, c := range map[string]struct {
		key keyAlone
		ok  bool
	}{
		"2048 bits":      {rsaOf(2048, 65537, false), true},
		"2047 bits":      {rsaOf(2047, 65537, false), false},
		"4096 bits":      {rsaOf(4096, 65537, false), true},
		"4097 bits":      {rsaOf(4097, 65537, false), false},
		"4104 bits":      {rsaOf(4104, 65537, false), false},
		"exponent 65539": {rsaOf(2048, 65539, false), false},
		"exponent 65535": {rsaOf(2048, 65535, false), false},
		"exponent 3":     {rsaOf(2048, 3, false), false},
		"even modulus":   {rsaOf(2048, 65537, true), false},
		"CVE-2017-15361": {keyAlone{&rsa.PublicKey{N: tpmlab.FlawedModulus(), E: 65537}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
			f.builder.key = c.key
			f.encode(t)
			_, err := f.policy.CheckUnsigned(context.Background(), f.request.Parsed(), csr.SignerClientTPM)
			if got := brokenRules(err); c.ok && err != nil || !c.ok && !slices.Equal(got, rules(csr.CheckKeyStrength)) {
				t.Errorf("got %v, good: %v", err, c.ok)
			}
			// A weak key's signature is not even looked at.
			_, err = f.policy.Check(context.Background(), f.request.Parsed())
			want := csr.CheckKeyStrength
			if c.ok {
				want = csr.CheckSignature
			}
			if got := brokenRules(err); !slices.Equal(got, rules(want)) {
				t.Errorf("with the signature: got %v, want %v", err, want)
			}
		})
	}
}

// TestPolicyReservedNames: each name that is reserved, and its neighbours that are not.
func TestPolicyReservedNames(t *testing.T) {
	for name, reserved := range map[string]bool{
		"kubernetes": true, "kubernetes.default": true, "kubernetes.default.x": true, "kubernetes.default.svc": true,
		"localhost": true, "a.localhost": true, "a.svc": true, "a.cluster.local": true, "kubernetes.default.svc.cluster.local": true,
		"kubernetes1": false, "kubernetes.x": false, "kubernetes.default1": false, "xkubernetes": false, "x.kubernetes.default": false,
		"localhost1": false, "xlocalhost": false, "asvc": false, "svc": false, "cluster.local": false, "acluster.local": false,
		"api.corp.example": true, "xapi.corp.example": false, "lb.example": true, "a.lb.example": false, "b.zone.example": true, "zone.example": false,
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFixture(csr.SignerServingTPM, csr.RequesterNode)
			f.policy.ReservedDNSNames = []string{"api.corp.example", "lb.example", ".zone.example"}
			f.builder.extensions = f.builder.extensions[:0]
			f.builder.extensions = append(f.builder.extensions, sanExtension(dnsSAN(name)))
			f.machine.DNSNames = []string{name}
			_, err := f.check(t)
			if got := brokenRules(err); reserved && !slices.Equal(got, rules(csr.CheckSANReserved)) || !reserved && err != nil {
				t.Errorf("got %v, reserved: %v", err, reserved)
			}
		})
	}
}

// TestPolicyReservedAddresses: the first and last address of the networks that are always reserved, and
// its neighbours.
func TestPolicyReservedAddresses(t *testing.T) {
	for address, reserved := range map[string]bool{
		"0.0.0.0": true, "0.255.255.255": true, "1.0.0.0": false, "127.0.0.1": true, "128.0.0.1": false, "169.254.0.1": true, "169.255.0.1": false,
		"223.255.255.255": false, "224.0.0.1": true, "239.255.255.255": true, "240.0.0.0": true, "255.255.255.255": true, "192.0.2.7": false,
		"::": true, "::1": true, "::7f00:1": true, "::c000:207": false, "fe80::1": true, "ff02::1": true, "2001:db8::1": false,
		"64:ff9b::7f00:1": true, "64:ff9b::c000:207": false, "2002:7f00:1::1": true, "2002:c000:207::1": false, "::ffff:0:7f00:1": true, "::ffff:0:c000:207": false,
		"10.96.0.1": true, "10.97.0.1": false, "64:ff9b::a60:1": true, "2002:a60:1::": true, "fd00::1": true, "fd01::1": false,
	} {
		t.Run(address, func(t *testing.T) {
			f := goodFixture(csr.SignerServingTPM, csr.RequesterNode)
			f.policy.ReservedIPs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00::/16")}
			f.builder.extensions = f.builder.extensions[:0]
			f.builder.extensions = append(f.builder.extensions, sanExtension(ipSAN(address)))
			f.machine.IPAddresses = []netip.Addr{netip.MustParseAddr(address)}
			_, err := f.check(t)
			if got := brokenRules(err); reserved && !slices.Equal(got, rules(csr.CheckSANReserved)) || !reserved && err != nil {
				t.Errorf("got %v, reserved: %v", err, reserved)
			}
		})
	}
}

// TestPolicySANCountExactly: the most SANs, and one more, which are not judged one by one.
func TestPolicySANCountExactly(t *testing.T) {
	for count, want := range map[int][]csr.Check{csr.MaxSANs: nil, csr.MaxSANs + 1: rules(csr.CheckSANCount)} {
		f := goodFixture(csr.SignerServingTPM, csr.RequesterNode)
		var names []generalName
		f.machine.DNSNames = nil
		for i := range count {
			name := fmt.Sprintf("n%d.example", i)
			names = append(names, dnsSAN(name))
			if want == nil {
				f.machine.DNSNames = append(f.machine.DNSNames, name)
			}
		}
		f.builder.extensions = f.builder.extensions[:0]
		f.builder.extensions = append(f.builder.extensions, sanExtension(names...))
		checked, err := f.check(t)
		if got := brokenRules(err); !slices.Equal(got, want) {
			t.Errorf("%d names: got %v, want %v", count, err, want)
		}
		if want == nil && len(checked.DNSNames()) != count {
			t.Errorf("%d names: %d were judged", count, len(checked.DNSNames()))
		}
	}
}

// TestPolicyRulesAlone: one fault is reported as that rule alone.
func TestPolicyRulesAlone(t *testing.T) {
	for name, c := range map[string]struct {
		signer string
		class  csr.RequesterClass
		change func(*requestFixture)
		want   []csr.Check
	}{
		"malformed name on a client": {csr.SignerClientTPM, csr.RequesterBootstrap, func(f *requestFixture) {
			f.builder.extensions = append(f.builder.extensions, sanExtension(dnsSAN("*.example")))
		}, rules(csr.CheckSANOnClient)},
		"serving, no machine": {csr.SignerServingTPM, csr.RequesterNode, func(f *requestFixture) { f.machine = nil }, rules(csr.CheckMachineUnknown)},
		"kubelet's serving, no node name": {csr.SignerKubeletServing, csr.RequesterNode, func(f *requestFixture) {
			f.builder.rdns[1][0].value = csr.NodeUserPrefix
			f.policy.IssuedRecord = func(context.Context, string, *csr.Request) (*csr.IssuedRecord, error) {
				panic("asked for a record of no node")
			}
		}, rules(csr.CheckSubjectCommonName)},
		"kubelet's serving, no credential": {csr.SignerKubeletServing, csr.RequesterNode, func(f *requestFixture) {
			f.request.User.Extra = nil
			f.policy.IssuedRecord = func(context.Context, string, *csr.Request) (*csr.IssuedRecord, error) {
				panic("asked for a record of no credential")
			}
		}, rules(csr.CheckCredential)},
		"hello for no signer, of any lifetime": {csr.SignerClientTPM, csr.RequesterBootstrap, func(f *requestFixture) {
			f.request.Spec.SignerName, f.target = csr.SignerChallengeTPM, "example.com/x"
			*f.request.Spec.ExpirationSeconds = 1 << 30
		}, rules(csr.CheckSignerName)},
		"filed under another signer, for a built-in one": {csr.SignerKubeAPIServerClientKubelet, csr.RequesterBootstrap, func(f *requestFixture) {
			f.request.Spec.SignerName = csr.SignerClientTPM
		}, rules(csr.CheckSignerName)},
		"filed under a provider's name": {csr.SignerClientTPM, csr.RequesterBootstrap, func(f *requestFixture) { f.request.Spec.SignerName = "tpm" }, rules(csr.CheckSignerName)},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFixture(c.signer, c.class)
			c.change(f)
			_, err := f.check(t)
			if got := brokenRules(err); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			// A name without a domain belongs to no machine here.
			if other := f.request.Spec.SignerName == "tpm"; errors.Is(err, csr.ErrOtherSigner) != other {
				t.Errorf("another signer's: %v", !other)
			}
		})
	}
}

// TestPolicyErrorsHoldWhatIsKnown: violations alone are Errors, no answer alone has
// none.
func TestPolicyErrorsHoldWhatIsKnown(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.request.Spec.Usages = nil
	_, err := f.check(t)
	if _, ok := err.(csr.Errors); !ok || errors.Is(err, refusal.ErrRetry) { //nolint:errorlint // the type itself
		t.Errorf("violations: got %T %v", err, err)
	}
	down := errors.New("down")
	f = goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.policy.Machines = func(context.Context, csr.Question) (*csr.Machine, error) { return nil, down }
	_, err = f.check(t)
	if _, ok := errors.AsType[csr.Errors](err); ok || !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, down) {
		t.Errorf("no answer: got %T %v", err, err)
	}
	f.request.Spec.Usages = nil
	_, err = f.check(t)
	if _, ok := errors.AsType[csr.Errors](err); !ok || !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, csr.CheckUsages) {
		t.Errorf("both: got %T %v", err, err)
	}
}

func TestRequesterTokenIDAlphabet(t *testing.T) {
	groups := []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}
	for b := range 256 {
		want := 'a' <= b && b <= 'z' || '0' <= b && b <= '9'
		_, err := (&csr.User{Username: csr.BootstrapUserPrefix + "abc12" + string([]byte{byte(b)}), Groups: groups}).Requester()
		if want != (err == nil) || err != nil && !errors.Is(err, csr.CheckRequestUsername) {
			t.Errorf("byte %#x: %v", b, err)
		}
	}
}

// TestInheritOfHello: a hello gets no certificate, not even from a policy that
// lets nodes challenge for the kubelet's own signer.
func TestInheritOfHello(t *testing.T) {
	f, _ := inheritingFixture()
	f.request.Spec.SignerName = csr.SignerChallengeTPM
	checked := f.mustCheck(t)
	if a, err := checked.Inherit(issueTime); a != nil || !errors.Is(err, csr.CheckInheritedPurpose) {
		t.Errorf("got %+v, %v, want %v", a, err, csr.CheckInheritedPurpose)
	}
	if a, err := new(csr.Checked).Inherit(issueTime); a != nil || !errors.Is(err, csr.CheckNotChecked) {
		t.Errorf("nothing checked: got %+v, %v, want %v", a, err, csr.CheckNotChecked)
	}
}
