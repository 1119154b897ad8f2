package authenticator

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/nodecert"
)

// certificates holds the stored pair, its predecessor and the wanted parameters for one purpose.
type certificates struct {
	// have is the current certificate, and previous the one that it replaced; nil if not stored.
	have, previous *certstore.Pair
	wanted         *nodecert.Wanted
	// lead is how long before its renewal time a certificate is renewed, at most.
	lead time.Duration
	// password identifies the password that the evidence would use now.
	password string
}

// step is the next action for one certificate.
type step struct {
	// use is the best certificate that can be used now; nil if all have expired.
	use *certstore.Pair
	do  action
	// at is the time of the next action, if do is wait.
	at time.Time
}

// action is the action that is due now.
type action int

const (
	wait  action = iota
	ask          // check that the API server accepts use
	renew        // get a new certificate
)

// How long to wait before the next attempt: at first, and at most. After a denial an administrator
// has to act, and so after a certificate that fails its checks (unfit); then the node tries again
// within a minute.
const (
	firstPause  = time.Second
	lastPause   = 30 * time.Second
	firstDenied = 5 * time.Second
	lastDenied  = 5 * time.Minute
	lastUnfit   = time.Minute
)

// askPause is the interval between two checks that the API server accepts a certificate.
const askPause = 5 * time.Minute

// next decides the next step for one certificate, for both the daemon and the plugin.
func next(t attempts, c certificates, now time.Time) step {
	if t.Last.After(now.Add(nodecert.Skew)) || t.Next.After(now.Add(lastDenied)) {
		t.Next = time.Time{} // the clock was ahead, or was set back
	}
	s := step{at: t.Next}
	if hands := c.usable(t, now); len(hands) != 0 {
		s.use = hands[0]
	}
	if s.use != nil && s.use == c.have && !t.refused(s.use) {
		if due := c.wanted.Due(c.have, now).Add(-min(c.lead, c.have.Leaf.NotAfter.Sub(c.have.Received)/20)); due.After(s.at) {
			s.at = due
		}
	}
	if t.Password != "" && t.Password == c.password {
		s.at = now.Add(lastPause) // until an administrator changes it
	}
	checked := now.Sub(t.Checked)
	switch {
	case !s.at.After(now):
		s.do = renew
	case s.use != nil && c.wanted.Purpose == csr.PurposeClient && !t.refused(s.use) && (checked < 0 || checked >= askPause) && now.Sub(s.use.Received).Abs() >= askPause:
		s.do = ask
	}
	return s
}

// usable returns the certificates that have not expired, the best first: the current one, then the
// previous one. Certificates that the API server rejected come last: the rejection may be temporary.
func (c certificates) usable(t attempts, now time.Time) []*certstore.Pair {
	var good, refused []*certstore.Pair
	for _, p := range []*certstore.Pair{c.have, c.previous} {
		switch {
		case !p.Usable(now):
		case t.refused(p):
			refused = append(refused, p)
		default:
			good = append(good, p)
		}
	}
	return append(good, refused...)
}

func (t attempts) refused(p *certstore.Pair) bool {
	return slices.Contains(t.Refused, csr.CredentialID(p.Leaf))
}

// pause doubles with each failure, and is reduced by up to half at random.
func pause(failures int, err error) time.Duration {
	first, last := firstPause, lastPause
	switch {
	case isDenied(err):
		first, last = firstDenied, lastDenied
	case errors.Is(err, certstore.CheckPair):
		first, last = firstDenied, lastUnfit
	}
	d := first << min(max(failures-1, 0), 10)
	d = min(d, last)
	return d/2 + rand.N(d/2)
}
