package csr

import (
	"slices"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// minExpirationSeconds is the least that kube-apiserver takes (pkg/apis/certificates/
// validation), and minExpiration the same.
const (
	minExpirationSeconds = 600
	minExpiration        = minExpirationSeconds * time.Second
)

func (x *run) checkRequestClosed() {
	for _, fault := range x.request.closed() {
		x.refuse(fault, "an open request")
	}
}

// closed says what makes a request one about which nothing can be decided any more.
func (r *Request) closed() []string {
	var faults []string
	if r.Metadata.DeletionTimestamp != nil {
		faults = append(faults, "a request that is being deleted")
	}
	for _, final := range [...]string{ConditionDenied, ConditionFailed} {
		if r.HasCondition(final) {
			faults = append(faults, "condition "+final)
		}
	}
	if len(r.Status.Certificate) > 0 {
		faults = append(faults, "a request with a certificate")
	}
	return faults
}

func (x *run) checkSignerName() {
	target := x.out.signerName
	x.out.filedUnder = x.request.Spec.SignerName
	var want string
	x.out.purpose, x.provider, want = parseSignerName(target)
	switch {
	case x.out.purpose == 0:
		x.refuse(refusal.Quote(target), want)
	case !slices.Contains(x.policy.SignerNames, target):
		x.refuse(refusal.Quote(target), "a signer that this policy serves")
	case x.out.filedUnder != target && !x.isHello():
		x.refuse(refusal.Quote(x.out.filedUnder), target+", or its challenge signer")
	}
}

// isOthers says whether requests that are filed under this name are somebody else's.
// Nobody has the empty name, which no API server takes.
func (p *Policy) isOthers(name string) bool {
	return name != "" && !slices.Contains(p.SignerNames, name)
}

// otherSigner is what becomes of a request of somebody else's: it is not denied, since
// who is meant may still answer it.
func otherSigner(name string) error {
	_, _, want := parseSignerName(name)
	if want == "" {
		want = "a signer that this policy serves"
	}
	return Errors{{Check: CheckSignerName, Got: refusal.Quote(name), Want: want, Err: Retry(ErrOtherSigner)}}
}

// isChallengeSigner says whether hellos of some provider are filed under this name.
func isChallengeSigner(name string) bool {
	return challengedProvider(name) != ""
}

// isHello says whether the object is filed under the challenge signer of the
// provider that the target selects; Kubernetes' own signers select none.
func (x *run) isHello() bool {
	return isChallengeSigner(x.out.filedUnder) &&
		(x.provider == "" || x.out.filedUnder == challengeSignerPrefix+x.provider)
}

func (x *run) checkRequestUsername() {
	x.out.username = x.request.Spec.Username
	var err error
	x.out.requester, err = requesterOf(x.out.username)
	x.refuseErr(err)
}

func (x *run) checkRequestGroups() {
	if x.out.requester.Class == 0 {
		return // nobody can say which groups an unknown user should have
	}
	x.refuseErr(checkGroups(x.out.requester.Class, x.request.Spec.Groups))
}

func (x *run) checkRequesterPurpose() {
	class := x.out.requester.Class
	if class == 0 || x.out.purpose == 0 || class.mayAsk(x.out.purpose, x.provider) {
		return
	}
	got := "a " + x.out.purpose.String() + " certificate for a " + class.String() + " requester"
	if x.provider == ProviderInsecure {
		x.refuse(got, "client certificates for bootstrap requesters only: the insecure signer does not rotate")
		return
	}
	x.refuse(got, "what the class may ask for")
}

func (x *run) checkUsages() {
	if x.out.purpose == 0 {
		return
	}
	const signature, encipherment, auth = 1, 2, 4
	usages := x.request.Spec.Usages
	seen := 0
	for _, u := range usages {
		bit := 0
		switch u {
		case usageDigitalSignature:
			bit = signature
		case usageKeyEncipherment:
			bit = encipherment
		case x.out.purpose.authUsage():
			bit = auth
		}
		if bit == 0 || seen&bit != 0 {
			x.refuse(refusal.Quotes(usages), x.wantedUsages())
			return
		}
		seen |= bit
	}
	if seen|encipherment != signature|encipherment|auth {
		x.refuse(refusal.Quotes(usages), x.wantedUsages())
	}
	x.out.keyEncipherment = seen&encipherment != 0
}

func (x *run) wantedUsages() string {
	return usageDigitalSignature + ", " + x.out.purpose.authUsage() + ", perhaps " + usageKeyEncipherment
}

func (x *run) checkExpiration() {
	asked := x.request.Spec.ExpirationSeconds
	if asked != nil && *asked < minExpirationSeconds {
		x.refuse(strconv.Itoa(int(*asked))+" s", "600 s or more")
		return
	}
	if asked != nil {
		x.out.lifetime = time.Duration(*asked) * time.Second
	}
	if x.out.purpose == 0 || x.provider != "" {
		return // our own signers cap what they issue
	}
	longest := x.policy.maxExpiration()
	want := "at most " + strconv.Itoa(int(longest/time.Second)) + " s"
	if asked == nil && x.policy.BuiltInSignerDuration == 0 {
		x.refuse("no expirationSeconds", want)
	}
	if x.out.lifetime > longest {
		x.refuse(strconv.Itoa(int(*asked))+" s", want)
	}
}
