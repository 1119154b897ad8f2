package csr

import (
	"context"
	"crypto/elliptic"
	"encoding/asn1"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// ErrPolicy says that a [Policy] lacks something that it needs, or contradicts
// itself. It is no refusal of any request: [Decide] answers it with retry.
const ErrPolicy Error = "the policy is not usable"

// Policy decides whether a request is one that a node of this cluster may make. It
// knows nothing of evidence: a request that passes says which machine wants to be
// which node, and what a provider verifies next is whether that is so.
//
// SignerNames and Machines must be set; the zero Policy refuses everything with
// [ErrPolicy]. All else may stay zero and is then at its strictest. A Policy is only
// read once it is in use, so many goroutines may share one.
//
// The rules are those of the Cluster API's kubelet authentication ("Node
// Attestation") and of Kubernetes 1.36 (pkg/apis/certificates/helpers.go), and more
// where Kubernetes does not look: empty node names, organizational units,
// extensions, SANs that are neither DNS names nor addresses, a user's UID in the
// subject. Each is a constant named Rule; [PolicyRules] lists them.
type Policy struct {
	// SignerNames are the signers whose certificates may be asked for, each in
	// full. At least one, and each one that [PurposeOf] knows.
	SignerNames []string

	// Machines finds the machine that is to be the node. It is asked once a check
	// for every request that names a node, with the request for what else it may
	// want to look at, and returns [ErrNoMachine] where there is none. Any other
	// error, and a nil Machine without an error, means that the check could not be
	// decided. It may be called from many goroutines, and must not keep or change
	// the request.
	Machines func(ctx context.Context, nodeName string, r *Request) (*Machine, error)

	// Records finds the record of a certificate that was issued through
	// attestation, by its credential ID, and returns [ErrNoRecord] where there is
	// none. It must be set where SignerNames has [SignerKubeletServing]: a kubelet
	// sends no evidence with its serving request, so what it inherits is the client
	// certificate that it comes with.
	Records func(ctx context.Context, credentialID string) (*IssuedRecord, error)

	// RequireProviderID refuses requests that claim no provider ID. The proposal
	// wants one from every provider; kubelets' own requests have none.
	RequireProviderID bool

	// Flag is the identifier under which requests may carry the flag extension
	// "this request has TPM evidence" of Kubernetes' node TLS bootstrapping via TPM
	// (2018). None is registered, so nil knows none and refuses the extension like
	// any other. Nothing is decided on the flag alone.
	Flag asn1.ObjectIdentifier
	// RequireFlag refuses requests without the flag.
	RequireFlag bool

	// MinRSABits is the shortest RSA modulus, in bits, from 2048 to 4096; 0 means
	// 2048. The longest is always 4096 and the exponent 65537.
	MinRSABits int
	// Curves are the curves of ECDSA keys; nil means P-256 and P-384. An empty
	// slice that is not nil takes no ECDSA key. Only P-256, P-384 and P-521 may be
	// listed.
	Curves []elliptic.Curve

	// ReservedIPs are the networks from which no certificate has an address, even
	// where the machine lists it: the cluster's service CIDRs, the addresses of the
	// API server and of load balancers. Loopback, unspecified, link-local,
	// multicast and broadcast addresses, and 0.0.0.0/8 and 240.0.0.0/4, are always
	// refused. An IPv6 address that stands for an IPv4 address (64:ff9b::/96,
	// 2002::/16, ::ffff:0:0:0/96, ::/96) is refused where that is.
	ReservedIPs []netip.Prefix
	// ReservedDNSNames are names that no certificate has, in any case of letters.
	// One that begins with a dot stands for every name that ends so. Each is a DNS
	// name after that dot: no wildcard, no dot at the end, no port. Always refused
	// are kubernetes, kubernetes.default and all below it that begins so, localhost
	// and names below it, and names that end in .svc or .cluster.local. Where the
	// cluster's domain is another, list ".svc.<domain>".
	ReservedDNSNames []string

	// MaxExpiration is the longest lifetime that a request to Kubernetes' own
	// signers may have, since those would grant up to a year; 0 means 24 hours.
	// Certificates cannot be revoked. Requests to other signers may ask for more,
	// and get what [CAOptions] allows.
	MaxExpiration time.Duration
	// BuiltInSignerDuration states for how long Kubernetes' own signers issue where
	// a request does not say (kube-controller-manager's
	// --cluster-signing-duration), at most MaxExpiration. 0 means that this is not
	// known, so that such a request is refused. Kubelets never say it, so to serve
	// their own requests this must be set, and be true.
	BuiltInSignerDuration time.Duration
}

// errNoContext is a programmer's error, and no request's fault.
const errNoContext Error = "the context is nil"

// DefaultMaxExpiration bounds lifetimes where nothing else is said.
const DefaultMaxExpiration = 24 * time.Hour

// The lengths of RSA moduli that policies take, in bits.
const (
	minRSABits      = 2048
	maxPolicyRSABit = 4096
)

// Check holds a request against every rule, its own signature included. The signer
// is the one that the request is filed under.
//
// A request that is filed under a name which is none of SignerNames is somebody else's: nothing in it
// is judged, and the error matches [RuleSignerName], [ErrOtherSigner] and [ErrRetry],
// so that [Decide] ignores it and a controller may watch all requests.
//
// Where rules are broken the error is, or holds beside [ErrRetry], [Violations]:
// all of them, in the order of [PolicyRules], except that a bundle or PKCS#10
// request that does not parse ends the list, and that one rule is reported at most
// 16 times. Where a callback could not answer, or ctx is done, the error matches
// [ErrRetry] too. An unusable policy gives [ErrPolicy]. [Decide] makes a decision of
// any of these.
func (p *Policy) Check(ctx context.Context, r *Request) (*Checked, error) {
	if r == nil {
		return nil, Violations{{Check: RuleNotChecked, Got: "no request"}}
	}
	return p.check(ctx, r, r.Spec.SignerName, false)
}

// CheckUnsigned is Check without the request's signature, which costs most. The
// caller checks it later, with [Checked.CheckSignature]; [CA.Issue] does so in any
// case. targetSigner is the signer of the certificate: the one that the request is
// filed under or, where that is a challenge signer such as [SignerChallengeTPM], the
// one that the node's hello states: a hello is denied for a target that is not
// served. A request that is filed under a third signer breaks [RuleSignerName], and is
// left alone where SignerNames does not have that one either.
func (p *Policy) CheckUnsigned(ctx context.Context, r *Request, targetSigner string) (*Checked, error) {
	if r == nil {
		return nil, Violations{{Check: RuleNotChecked, Got: "no request"}}
	}
	return p.check(ctx, r, targetSigner, true)
}

func (p *Policy) check(ctx context.Context, r *Request, target string, unsigned bool) (*Checked, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if ctx == nil {
		return nil, Retry(errNoContext)
	}
	if err := ctx.Err(); err != nil {
		return nil, Retry(err)
	}
	if filed := r.Spec.SignerName; p.isOthers(filed) && !(unsigned && isChallengeSigner(filed)) {
		return nil, otherSigner(filed)
	}
	x := &run{policy: p, ctx: ctx, request: r, Checked: &Checked{request: r, signerName: target,
		uid: r.Metadata.UID, credentialID: r.CredentialID()}}
	x.try(stageObject)
	if x.parse() {
		x.try(stageRequest)
		x.findMachine()
		x.try(stageMachine)
		if !unsigned && !x.broken(RuleKeyType) && !x.broken(RuleKeyStrength) {
			x.refuseErr(x.CheckSignature())
		}
	}
	if err := x.err(); err != nil {
		return nil, err
	}
	return x.Checked, nil
}

// Validate says whether the policy can decide anything: nil, or [ErrPolicy] with the
// first thing that is missing or wrong. Every check does the same first, so this is
// for finding out before the first request comes.
func (p *Policy) Validate() error {
	fault := ""
	switch {
	case p == nil:
		fault = "there is none"
	case len(p.SignerNames) == 0:
		fault = "SignerNames is empty"
	case p.Machines == nil:
		fault = "Machines is nil"
	case p.Records == nil && slices.Contains(p.SignerNames, SignerKubeletServing):
		fault = "Records is nil, and SignerNames has " + SignerKubeletServing
	case p.RequireFlag && p.Flag == nil:
		fault = "RequireFlag is set, and Flag is nil"
	case p.Flag != nil && !isFlagIdentifier(p.Flag):
		fault = "Flag is no identifier that a request can carry"
	case isKnownExtension(p.Flag):
		fault = "Flag is another extension's identifier"
	case p.MinRSABits != 0 && (p.MinRSABits < minRSABits || p.MinRSABits > maxPolicyRSABit):
		fault = "MinRSABits is not from 2048 to 4096"
	case p.MaxExpiration != 0 && p.MaxExpiration < minExpiration:
		fault = "MaxExpiration is under 10 minutes"
	case p.BuiltInSignerDuration < 0 || p.BuiltInSignerDuration > p.maxExpiration():
		fault = "BuiltInSignerDuration is not from 0 to MaxExpiration"
	}
	for i := 0; fault == "" && i < len(p.SignerNames); i++ {
		if purpose, _, _ := parseSignerName(p.SignerNames[i]); purpose == 0 {
			fault = "SignerNames has " + refusal.Quote(p.SignerNames[i])
		}
	}
	for i := 0; fault == "" && i < len(p.ReservedIPs); i++ {
		if !p.ReservedIPs[i].IsValid() {
			fault = "ReservedIPs has an invalid prefix"
		}
	}
	for i := 0; fault == "" && i < len(p.ReservedDNSNames); i++ {
		if !reservable(p.ReservedDNSNames[i]) {
			fault = "ReservedDNSNames has " + refusal.Quote(p.ReservedDNSNames[i]) + ", which is no DNS name"
		}
	}
	for i := 0; fault == "" && i < len(p.Curves); i++ {
		switch p.Curves[i] {
		case elliptic.P256(), elliptic.P384(), elliptic.P521():
		default:
			fault = "Curves has one that is not P-256, P-384 or P-521"
		}
	}
	if fault != "" {
		return fmt.Errorf("%w: %s", ErrPolicy, fault)
	}
	return nil
}

func (p *Policy) maxExpiration() time.Duration {
	if p.MaxExpiration == 0 {
		return DefaultMaxExpiration
	}
	return p.MaxExpiration
}
