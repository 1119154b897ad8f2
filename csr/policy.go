package csr

import (
	"cmp"
	"context"
	"crypto/elliptic"
	"encoding/asn1"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/internal/wallclock"
	"github.com/nodeattest/nodeattest/refusal"
)

// Policy decides whether a request is one that a node of this cluster may make. It knows
// nothing about evidence: a request that passes says which machine wants to be which node,
// and a provider then verifies whether that is true.
//
// SignerNames, ClusterIDs and Machines must be set; the zero Policy refuses everything with
// [refusal.CheckConfig]. Everything else may stay zero and is then at its strictest. Once in
// use, a Policy is only read, so many goroutines may share one.
//
// The rules are taken from the Cluster API's kubelet authentication ("Node Attestation") and
// of Kubernetes 1.36 (pkg/apis/certificates/helpers.go), and more where Kubernetes does not
// check: empty node names, organizational units, extensions, SANs that are neither DNS names
// nor addresses, a user's UID in the subject. Each is a constant whose name begins with
// Check; [PolicyChecks] lists them.
type Policy struct {
	// SignerNames are the signers whose certificates may be asked for: at least one, each in
	// full and known to [PurposeOf].
	SignerNames []string

	// ClusterIDs are the names of the one cluster that the policy serves: one, or several
	// while the cluster's CA is being rotated. Each is 1 to 128 bytes, and not a name that
	// tools give to every cluster. See attest.ClusterID.
	ClusterIDs []string
	// Machines finds the machine that is to be the node. It is called once per check for
	// every request that names a node, and returns [ErrNoMachine] if it has no machine. Any other
	// error, and a nil Machine without an error, means that the check could not be decided.
	// It may be called from many goroutines, and must not keep or change the question. The
	// machine is copied, except its slices, in which the inventory must not write afterwards.
	Machines func(ctx context.Context, q Question) (*Machine, error)

	// IssuedRecord finds the record of a certificate that was issued through attestation, by its
	// credential ID, and returns [ErrNoRecord] if it has no record. It must be set if
	// SignerNames has [SignerKubeletServing]: a kubelet sends no evidence with its serving
	// request, so it inherits the attestation of the client certificate that it uses.
	// It is called once for a request, which it must not keep or change, and the record
	// is kept for [Checked.Inherit].
	IssuedRecord func(ctx context.Context, credentialID string, r *Request) (*IssuedRecord, error)

	// RequireProviderID refuses requests that claim no provider ID. The proposal requires
	// one from every provider; kubelets' own requests have none.
	RequireProviderID bool

	// Flag is the identifier under which requests may carry the flag extension "this request
	// has TPM evidence" of Kubernetes' node TLS bootstrapping via TPM (2018). None is
	// registered, so by default (nil) the extension is refused like any other. Nothing is
	// decided on the flag alone.
	Flag asn1.ObjectIdentifier
	// RequireFlag refuses requests without the flag.
	RequireFlag bool

	// ReservedIPs are the networks from which no certificate may have an address, even if
	// the machine lists it: the cluster's service CIDRs, the addresses of the API server and
	// of load balancers. Loopback, unspecified, link-local, multicast and broadcast
	// addresses, and 0.0.0.0/8 and 240.0.0.0/4, are always refused. An IPv6 address that
	// stands for an IPv4 address (64:ff9b::/96, 2002::/16, ::ffff:0:0:0/96, ::/96) is
	// refused if that is.
	ReservedIPs []netip.Prefix
	// ReservedDNSNames are names that no certificate may have, in upper or lower case. One
	// that begins with a dot stands for every name that ends with it. After that dot, each
	// is a DNS name: no wildcard, no trailing dot, no port. Always refused are kubernetes,
	// kubernetes.default and every name that begins with "kubernetes.default.", localhost
	// and names below it, and names that end in .svc or .cluster.local. If the cluster has
	// another domain, list ".svc.<domain>".
	ReservedDNSNames []string

	// MaxLifetime is the longest lifetime of a certificate by Kubernetes' own signers, which
	// would grant up to a year: 10 minutes or more; 0 means [DefaultMaxLifetime].
	// Certificates cannot be revoked. Requests to other signers may ask for more, and get
	// what [CAConfig] allows.
	MaxLifetime time.Duration
	// BuiltInSignerDuration is the lifetime that Kubernetes' own signers give if a request
	// does not ask for one (kube-controller-manager's --cluster-signing-duration), 10
	// minutes to MaxLifetime. 0 means that it is not known, so that such a request is refused.
	// Kubelets never ask for a lifetime, so to serve their own requests this must be set,
	// and be correct.
	BuiltInSignerDuration time.Duration

	// Now is the clock; nil means [time.Now].
	Now func() time.Time
}

// Lifetimes of certificates.
const (
	// DefaultMaxLifetime is the default of MaxLifetime.
	DefaultMaxLifetime = 24 * time.Hour
	// MinLifetime is the smallest cap of a [CA]. So short a cap is for tests: no kubelet
	// asks for less than 10 minutes.
	MinLifetime = time.Minute
	// Backdate is how far in the past a certificate's validity begins, to allow for slow
	// clocks, but never more than a tenth of the time that it has from now on: kubelets
	// count it as part of the lifetime, and renew after seven tenths of that. It does not
	// make the certificate last longer.
	Backdate = 5 * time.Minute
)

// policyCurves are the curves that policies accept. They are never modified.
var policyCurves = []elliptic.Curve{elliptic.P256(), elliptic.P384()}

// The lengths of RSA moduli that policies accept, in bits. The exponent is 65537.
const (
	minRSABits      = 2048
	maxPolicyRSABit = 4096
)

// Check checks a request against every rule, its own signature included. The signer is the
// one that the request is filed under.
//
// A request filed under a name that is not in SignerNames is another controller's: nothing in it
// is judged, and the error matches [CheckSignerName], [ErrOtherSigner] and [refusal.ErrRetry], so
// that [Decide] ignores it and a controller may watch all requests.
//
// If rules are broken, the error is [Errors], or holds it together with [refusal.ErrRetry]: all
// broken rules, in the order of [PolicyChecks], except that a bundle or PKCS#10 request that
// does not parse ends the list, and that each rule is reported at most 16 times. If a
// callback could not answer, or ctx is done, the error also matches [refusal.ErrRetry]. An unusable
// policy gives [refusal.CheckConfig]. [Decide] turns any of these into a decision.
func (p *Policy) Check(ctx context.Context, r *Parsed) (*Checked, error) {
	return p.check(ctx, r, r.Request().signerName(), false)
}

// CheckUnsigned is Check without the request's signature, the most expensive part. The
// caller checks that later, with [Checked.CheckSignature]; [CA.Issue] does so in any case.
// targetSigner is the signer of the certificate: the one that the request is filed under or,
// if that is a challenge signer such as [SignerChallengeTPM], the one that the node's hello
// states. A hello is denied if its target is not served. A request filed under a third
// signer breaks [CheckSignerName], and is left alone if SignerNames does not have that one
// either.
func (p *Policy) CheckUnsigned(ctx context.Context, r *Parsed, targetSigner string) (*Checked, error) {
	return p.check(ctx, r, targetSigner, true)
}

func (p *Policy) check(ctx context.Context, parsed *Parsed, target string, unsigned bool) (*Checked, error) {
	r := parsed.Request()
	if r == nil {
		return nil, noRequest()
	}
	if err := cmp.Or(p.Validate(), begun(ctx)); err != nil {
		return nil, err
	}
	// Another controller's request is not denied, since it may still be answered. Nothing has
	// the empty name, which no API server accepts.
	filed := r.Spec.SignerName
	if filed != "" && !slices.Contains(p.SignerNames, filed) && !(unsigned && challengedProvider(filed) != "") {
		_, _, want := parseSignerName(filed)
		want = cmp.Or(want, "a signer that this policy serves")
		return nil, Errors{{Check: CheckSignerName, Got: refusal.Quote(filed), Want: want, Err: refusal.Retry(ErrOtherSigner)}}
	}
	x := &run{policy: p, ctx: ctx, request: r, out: &Checked{signerName: target, filedUnder: filed,
		username: r.User.Username, uid: r.Metadata.UID, credentialID: r.CredentialID(), now: wallclock.Or(p.Now), clusters: p.ClusterIDs}}
	x.out.at = x.out.now()
	x.try(objectRules)
	var err error
	x.out.bundle, x.out.pkcs10, err = parsed.read()
	x.refuseErr(err)
	if err == nil { // otherwise nothing more can be said about the request
		x.try(requestRules)
		x.try(sanRules)
		x.try(machineRules)
		weak := func(e *Error) bool { return e.Check == checkKeyType || e.Check == checkKeyStrength }
		if !unsigned && !slices.ContainsFunc(x.found, weak) {
			x.refuseErr(x.out.CheckSignature())
		}
	}
	if err := x.err(); err != nil {
		return nil, err
	}
	if x.out.provider == "" { // under Kubernetes' own signers
		x.out.provider, _, _ = x.out.bundle.ProviderVersion()
	}
	return x.out, nil
}

// Validate checks that the policy can decide anything: it returns nil, or
// [refusal.CheckConfig] with the first thing that is missing or wrong. Every check does the
// same first, so this is for finding out before the first request arrives.
func (p *Policy) Validate() error {
	switch {
	case p == nil:
		return refusal.Config("Policy", "", "one")
	case p.Machines == nil:
		return refusal.Config("Machines", "", "the inventory")
	case p.IssuedRecord == nil && slices.Contains(p.SignerNames, SignerKubeletServing):
		return refusal.Config("IssuedRecord", "", "the issued records, for "+SignerKubeletServing+" in SignerNames")
	case p.RequireFlag && p.Flag == nil:
		return refusal.Config("Flag", "", "one, since RequireFlag is set")
	case p.Flag != nil && !isFlagIdentifier(p.Flag):
		return refusal.Config("Flag", p.Flag.String(), "an identifier that a request can carry")
	case isKnownExtension(p.Flag):
		return refusal.Config("Flag", p.Flag.String(), "an identifier of its own")
	case slices.ContainsFunc(p.ReservedIPs, func(n netip.Prefix) bool { return !n.IsValid() }):
		return refusal.Config("ReservedIPs", "an invalid prefix", "networks")
	}
	for _, name := range p.ReservedDNSNames { // one that no SAN can be or end with would reserve nothing
		if _, want := names.ServingDNS(strings.TrimPrefix(name, ".")); want != "" {
			return refusal.Config("ReservedDNSNames", refusal.Quote(name), "DNS names")
		}
	}
	return cmp.Or(checkLifetime("MaxLifetime", p.MaxLifetime, minExpiration, math.MaxInt64),
		checkLifetime("BuiltInSignerDuration", p.BuiltInSignerDuration, minExpiration, p.maxLifetime()),
		checkClusterIDs(p.ClusterIDs), checkSignerNames(p.SignerNames))
}

// checkClusterIDs checks that a cluster has names of its own. Several IDs are one cluster's.
func checkClusterIDs(ids []string) error {
	if len(ids) == 0 {
		return refusal.Config("ClusterIDs", "", "at least one")
	}
	for _, id := range ids {
		if err := der.CheckText("cluster", "ID", id, 1, der.MaxClusterIDSize); err != nil {
			return &Error{Check: refusal.CheckConfig, Got: "an unusable name in ClusterIDs", Err: err}
		}
		if slices.Contains(commonClusterIDs, strings.ToLower(id)) {
			return refusal.Config("ClusterIDs", id+", which tools give to every cluster", "a name that no other cluster has, such as attest.ClusterID's")
		}
	}
	return nil
}

// commonClusterIDs are names of clusters that kubeadm, kind, minikube, k3s and clients give
// unless they are told another, and the name of the cluster's DNS domain.
var commonClusterIDs = []string{"kubernetes", "kind", "minikube", "default", "local", "cluster", "cluster.local"}

// checkLifetime checks a lifetime that the caller wrote into a field: 0, or least to most.
func checkLifetime(field string, lifetime, least, most time.Duration) error {
	if lifetime == 0 || least <= lifetime && lifetime <= most {
		return nil
	}
	want := "0, or " + least.String()
	if most == math.MaxInt64 {
		return refusal.Config(field, lifetime.String(), want+" or more")
	}
	return refusal.Config(field, lifetime.String(), want+" to "+most.String())
}

func (p *Policy) maxLifetime() time.Duration { return cmp.Or(p.MaxLifetime, DefaultMaxLifetime) }

// Clone returns a copy of p that shares no memory with it except what its functions refer
// to. A verifier keeps a clone, so that a caller cannot change its policy later. The clone
// of nil is nil.
func (p *Policy) Clone() *Policy {
	if p == nil {
		return nil
	}
	c := *p
	c.SignerNames, c.ClusterIDs = slices.Clone(p.SignerNames), slices.Clone(p.ClusterIDs)
	c.Flag = slices.Clone(p.Flag)
	c.ReservedIPs = slices.Clone(p.ReservedIPs)
	c.ReservedDNSNames = slices.Clone(p.ReservedDNSNames)
	return &c
}
