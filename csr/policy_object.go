package csr

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// minExpirationSeconds is the least that kube-apiserver takes (pkg/apis/certificates/
// validation), and minExpiration the same.
const (
	minExpirationSeconds = 600
	minExpiration        = minExpirationSeconds * time.Second
)

// objectRules need the object's metadata, spec and status alone.
var objectRules = []rule{
	{CheckRequestClosed, nil, func(x *run) {
		for _, fault := range x.request.closed() {
			x.refuse(fault, "an open request")
		}
	}},
	{CheckSignerName, nil, (*run).checkSignerName},
	{CheckRequestUsername, nil, func(x *run) {
		var err error
		x.out.requester, err = requesterOf(x.out.username)
		x.refuseErr(err)
	}},
	{CheckRequestGroups, nil, func(x *run) {
		if class := x.out.requester.Class; class != 0 { // else nobody can say which groups the user should have
			x.refuseErr(checkGroups(class, x.request.Spec.Groups))
		}
	}},
	{CheckRequesterPurpose, known, func(x *run) {
		class := x.out.requester.Class
		if class == 0 || class.mayAsk(x.out.purpose, x.provider) {
			return
		}
		want := "what the class may ask for"
		if x.provider == ProviderInsecure {
			want = "client certificates for bootstrap requesters only: the insecure signer does not rotate"
		}
		x.refuse("a "+x.out.purpose.String()+" certificate for a "+class.String()+" requester", want)
	}},
	{CheckUsages, known, func(x *run) {
		asked := x.request.Spec.Usages
		wanted := [...]string{usageDigitalSignature, purposes[x.out.purpose].auth, usageKeyEncipherment}
		x.out.keyEncipherment = slices.Contains(asked, usageKeyEncipherment)
		needed := wanted[:2]
		if x.out.keyEncipherment {
			needed = wanted[:]
		}
		if len(asked) != len(needed) || slices.ContainsFunc(needed, func(u string) bool { return !slices.Contains(asked, u) }) {
			x.refuse(refusal.Quotes(asked), strings.Join(wanted[:2], ", ")+", perhaps "+usageKeyEncipherment)
		}
	}},
	{CheckExpiration, nil, (*run).checkExpiration},
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

// checkSignerName reads the name. A hello is filed under the challenge signer of the
// provider that the target selects; Kubernetes' own signers select none.
func (x *run) checkSignerName() {
	target, filed := x.out.signerName, x.out.filedUnder
	var want string
	x.out.purpose, x.provider, want = parseSignerName(target)
	challenged := challengedProvider(filed)
	switch {
	case x.out.purpose == 0:
		x.refuse(refusal.Quote(target), want)
	case !slices.Contains(x.policy.SignerNames, target):
		x.refuse(refusal.Quote(target), "a signer that this policy serves")
	case filed != target && (challenged == "" || x.provider != "" && challenged != x.provider):
		x.refuse(refusal.Quote(filed), target+", or its challenge signer")
	}
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
