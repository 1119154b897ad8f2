package csr_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestDecisionEnds: what Kubernetes' own signers would let outlast the grant is neither approved nor
// recorded, by a second. A node that can ask for less is refused; a kubelet, which cannot, waits.
func TestDecisionEnds(t *testing.T) {
	const minute = time.Minute // to sign
	for name, c := range map[string]struct {
		signer  string
		asked   time.Duration // 0: none
		builtIn time.Duration
		end     time.Duration // from now; 0: no end
		want    csr.Verdict
	}{
		"client, no end":               {csr.SignerKubeAPIServerClientKubelet, time.Hour, 0, 0, csr.VerdictApprove},
		"client, in time":              {csr.SignerKubeAPIServerClientKubelet, time.Hour, 0, time.Hour + minute, csr.VerdictApprove},
		"client, a second too late":    {csr.SignerKubeAPIServerClientKubelet, time.Hour, 0, time.Hour + minute - time.Second, csr.VerdictDeny},
		"client, a day too late":       {csr.SignerKubeAPIServerClientKubelet, 24 * time.Hour, 0, minute, csr.VerdictDeny},
		"client, built-in, in time":    {csr.SignerKubeAPIServerClientKubelet, 0, time.Hour, time.Hour + minute, csr.VerdictApprove},
		"client, built-in, too late":   {csr.SignerKubeAPIServerClientKubelet, 0, time.Hour, time.Hour, csr.VerdictDeny},
		"client, less than built-in":   {csr.SignerKubeAPIServerClientKubelet, 30 * minute, time.Hour, 31 * minute, csr.VerdictApprove},
		"client, more than built-in":   {csr.SignerKubeAPIServerClientKubelet, 2 * time.Hour, time.Hour, 2 * time.Hour, csr.VerdictDeny},
		"client, ended":                {csr.SignerKubeAPIServerClientKubelet, time.Hour, 0, -1, csr.VerdictDeny},
		"serving, no end":              {csr.SignerKubeletServing, 0, time.Hour, 0, csr.VerdictApprove},
		"serving, in time":             {csr.SignerKubeletServing, 0, time.Hour, time.Hour + minute, csr.VerdictApprove},
		"serving, a second too late":   {csr.SignerKubeletServing, 0, time.Hour, time.Hour + minute - time.Second, csr.VerdictRetry},
		"serving, it asks for less":    {csr.SignerKubeletServing, 30 * minute, time.Hour, time.Hour, csr.VerdictApprove},
		"serving, it asks for as much": {csr.SignerKubeletServing, time.Hour, time.Hour, time.Hour, csr.VerdictDeny},
		"serving, ended":               {csr.SignerKubeletServing, 0, time.Hour, -1, csr.VerdictDeny},
		"our own, which shortens":      {csr.SignerClientTPM, time.Hour, 0, time.Second, csr.VerdictApprove},
		"our own, which has a cap":     {csr.SignerClientTPM, 365 * 24 * time.Hour, 0, time.Second, csr.VerdictApprove},
		"our own, ended":               {csr.SignerClientTPM, time.Hour, 0, -1, csr.VerdictDeny},
		"our own serving":              {csr.SignerServingTPM, time.Hour, 0, time.Second, csr.VerdictApprove},
		"our own for recovery":         {csr.SignerRecoveryTPM, time.Hour, 0, time.Second, csr.VerdictApprove},
		"no evidence":                  {csr.SignerClientInsecure, time.Hour, 0, time.Second, csr.VerdictApprove},
	} {
		t.Run(name, func(t *testing.T) {
			class := csr.RequesterBootstrap
			if purpose, _ := csr.PurposeOf(c.signer); purpose != csr.PurposeClient {
				class = csr.RequesterNode
			}
			f := goodFixture(c.signer, class)
			f.machine.Provider = csr.ProviderOf(c.signer)
			f.policy.BuiltInSignerDuration = c.builtIn
			if *f.request.Spec.ExpirationSeconds = int32(c.asked / time.Second); c.asked == 0 {
				f.request.Spec.ExpirationSeconds = nil
			}
			checked, end := f.mustCheck(t), issueTime.Add(c.end)
			if c.end == 0 {
				end = time.Time{}
			}
			for _, attested := range []*csr.Attested{
				checked.Vouch(goodIdentity, csr.Grant{NotAfter: end}, nil),
				checked.Vouch(goodIdentity, csr.Grant{}, nil).Until(end),
				checked.Vouch(goodIdentity, csr.Grant{NotAfter: issueTime.AddDate(1, 0, 0)}, nil).Until(end),
			} {
				if c.end == 0 && !attested.Grant().NotAfter.IsZero() {
					continue // Until removes no end
				}
				d := attested.Decision()
				_, err := attested.Record(nil)
				if d.Verdict != c.want || (err == nil) != (c.want == csr.VerdictApprove) || err != nil && csr.Decide(err).Verdict != c.want {
					t.Errorf("got %+v, and for its record %v, want %v", d, err, c.want)
				}
				want := map[csr.Verdict]string{csr.VerdictApprove: csr.ReasonApproved, csr.VerdictDeny: "Expiration", csr.VerdictRetry: csr.ReasonRetry}[c.want]
				if c.end < 0 {
					want = "VerifiedExpired"
				}
				if d.Reason != want || c.want == csr.VerdictRetry && !strings.Contains(d.Message, "BuiltInSignerDuration") {
					t.Errorf("got the reason %s: %s, want %s", d.Reason, d.Message, want)
				}
			}
		})
	}
}

// TestBuiltInLifetime: which lifetime cannot be shortened.
func TestBuiltInLifetime(t *testing.T) {
	f := goodFixture(csr.SignerKubeAPIServerClientKubelet, csr.RequesterBootstrap)
	f.policy.BuiltInSignerDuration = 2 * time.Hour
	if got := f.mustCheck(t).BuiltInLifetime(); got != time.Hour {
		t.Errorf("asked for: got %s", got)
	}
	f.request.Spec.ExpirationSeconds = nil
	if got := f.mustCheck(t).BuiltInLifetime(); got != 2*time.Hour {
		t.Errorf("not asked for: got %s", got)
	}
	if got := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap).mustCheck(t).BuiltInLifetime(); got != 0 {
		t.Errorf("another signer: got %s", got)
	}
}

// TestInheritedEnd: a serving certificate that is inherited ends with the client certificate. If the
// name of the node is kept for longer, it may end when the longest lifetime has passed since the
// client certificate began, and while the name is kept.
func TestInheritedEnd(t *testing.T) {
	const hour = time.Hour
	for name, c := range map[string]struct{ begun, notAfter, lastEnd, longest, want time.Duration }{
		"the name is not kept":                 {-hour, 2 * hour, 0, 24 * hour, 2 * hour},
		"the name is kept for less":            {-hour, 2 * hour, hour, 24 * hour, 2 * hour},
		"the name is kept for more":            {-hour, 2 * hour, 3 * hour, 24 * hour, 3 * hour},
		"the longest lifetime ends first":      {-hour, 2 * hour, 48 * hour, 24 * hour, 23 * hour},
		"the longest lifetime is that long":    {-22 * hour, 2 * hour, 48 * hour, 24 * hour, 2 * hour},
		"the longest lifetime was longer once": {-23 * hour, 2 * hour, 48 * hour, 12 * hour, 2 * hour},
	} {
		t.Run(name, func(t *testing.T) {
			f, record := inheritingFixture()
			f.policy.MaxLifetime = c.longest
			record.NotBefore, record.NotAfter = issueTime.Add(c.begun), issueTime.Add(c.notAfter)
			if c.lastEnd != 0 {
				record.LastEnd = issueTime.Add(c.lastEnd)
			}
			attested, err := inherit(t, f)
			if err != nil {
				t.Fatal(err)
			}
			if got := attested.Grant().NotAfter.Sub(issueTime); got != c.want {
				t.Errorf("ends in %s, want %s", got, c.want)
			}
		})
	}
	// A kubelet whose certificates have the same lifetime gets one, and for no longer than that: the
	// thief of a client certificate that is about to end gets none of a day.
	f, record := inheritingFixture()
	f.request.Spec.ExpirationSeconds, f.policy.BuiltInSignerDuration = nil, 2*hour
	record.NotBefore, record.NotAfter, record.LastEnd = issueTime.Add(-hour), issueTime.Add(hour), issueTime.Add(24*hour)
	for _, c := range []struct {
		begun time.Duration
		want  csr.Verdict
	}{{-hour, csr.VerdictApprove}, {-22*hour - time.Minute + time.Second, csr.VerdictRetry}} {
		record.NotBefore = issueTime.Add(c.begun)
		attested, err := inherit(t, f)
		if err != nil || attested.Decision().Verdict != c.want {
			t.Errorf("client certificate of %s: got %+v, %v, want %v", c.begun, attested.Decision(), err, c.want)
		}
	}
	day := int32(86400)
	f.request.Spec.ExpirationSeconds, record.NotBefore, record.NotAfter = &day, issueTime.Add(-hour), issueTime.Add(2*time.Minute)
	attested, err := inherit(t, f)
	if err != nil || attested.Decision().Reason != "Expiration" {
		t.Errorf("a day by two minutes: got %+v, %v", attested.Decision(), err)
	}
	if _, err := attested.Record(nil); !errors.Is(err, csr.Check("expiration")) || errors.Is(err, refusal.ErrRetry) {
		t.Errorf("its record: got %v", err)
	}
}
