package csr

import (
	"fmt"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// signingTime is how long after an approval Kubernetes' own signers may sign, and the certificate
// still ends in time. They count its lifetime from then.
const signingTime = time.Minute

// end returns when a certificate ends that would otherwise end at latest. It is the one rule about
// the end of a grant, for every signer: no certificate outlasts the NotAfter of the
// [Grant]. [CA.Issue] shortens a certificate to it. The certificate of a signer that shortens nothing is
// approved and recorded only if it need not be shortened (checkEnd).
func (a *Attested) end(latest time.Time) time.Time {
	if !a.grant.NotAfter.IsZero() && a.grant.NotAfter.Before(latest) {
		latest = a.grant.NotAfter
	}
	return latest.UTC().Truncate(time.Second)
}

// ended is the fault of a grant whose NotAfter has passed.
func (a *Attested) ended(now time.Time) fault {
	notAfter := a.grant.NotAfter
	if notAfter.IsZero() || notAfter.After(now) {
		return fault{}
	}
	return fault{true, checkVerifiedExpired, rfc3339(notAfter), "after " + rfc3339(now)}
}

// checkEnd refuses a request that must not be approved or recorded at now: the grant has
// ended, or it is for one of Kubernetes' own signers, whose certificate would outlast it. A node can
// ask for a shorter lifetime, and is refused. A kubelet's own request for a serving certificate
// states none: the error is [refusal.ErrRetry], and the kubelet asks again by itself, mostly with a
// new client certificate.
func (a *Attested) checkEnd(now time.Time) error {
	if err := (faults{a.ended(now)}).first(); err != nil {
		return err
	}
	c, latest := a.checked, now.Add(a.checked.given+signingTime)
	if c.given == 0 || a.end(latest).Equal(latest.UTC().Truncate(time.Second)) {
		return nil
	}
	end := rfc3339(a.grant.NotAfter)
	if c.lifetime == 0 && c.purpose == PurposeServing {
		return refusal.Retry(fmt.Errorf("csr: a certificate of %s, which %s gives, would outlast what is vouched for, until %s: wait for a renewed client certificate, or lower --cluster-signing-duration and BuiltInSignerDuration",
			c.given, c.signerName, end))
	}
	return &Error{Check: checkExpiration, Got: c.given.String() + " from " + rfc3339(now), Want: "an expirationSeconds that ends by " + end + ", and " + signingTime.String() + " to sign"}
}

// inheritedEnd returns when a serving certificate ends at the latest that is inherited from a client
// certificate.
func (c *Checked) inheritedEnd(r *IssuedRecord) time.Time {
	end := slices.MinFunc([]time.Time{r.NotBefore.Add(c.longest), r.LastEnd}, time.Time.Compare)
	return slices.MaxFunc([]time.Time{end, r.NotAfter}, time.Time.Compare)
}
