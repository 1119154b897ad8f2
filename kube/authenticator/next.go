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

// certificates are what there is for one purpose, and what is wanted.
type certificates struct {
	// have is the certificate in hand, and previous the one that it has replaced; nil if there
	// is none for this node and purpose.
	have, previous *certstore.Pair
	wanted         *nodecert.Wanted
	// lead is how long before its time a certificate is renewed, at most.
	lead time.Duration
	// password identifies the password that the evidence would use.
	password string
}

// step is what to do about one certificate.
type step struct {
	// use is the certificate that works best now; nil if there is none.
	use *certstore.Pair
	do  action
	// at is when there is something to do, if it is nothing now.
	at time.Time
}

// action is something to do now.
type action int

const (
	wait  action = iota
	ask          // ask the API server whether use works
	renew        // get a new certificate
)

// How long to wait before the next attempt: at first, and at most. A denial is a decision that
// only a person can change. A certificate that is unfit is one too, but a fit one is to come
// within a minute after that was changed.
const (
	firstPause  = time.Second
	lastPause   = 30 * time.Second
	firstDenied = 5 * time.Second
	lastDenied  = 5 * time.Minute
	lastUnfit   = time.Minute
)

// askPause is how long a certificate that works is not asked about again.
const askPause = 5 * time.Minute

// next decides what to do about one certificate. It is the only place where this is decided,
// for the daemon and the plugin.
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
		s.at = now.Add(lastPause) // until a person changes it
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

// usable are the certificates that have not ended, the best first: the one in hand, unless only
// the one before works. What the API server has refused is better than none: it may have been
// wrong.
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
