package authenticator

import (
	"crypto/x509"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
)

// certificates are what there is for one purpose, and what is wanted.
type certificates struct {
	// have is the certificate in hand, and previous the one that it has replaced; nil if there
	// is none for this node and purpose.
	have, previous *certstore.Pair
	// asked is the lifetime that is asked for; 0 leaves it to the signer.
	asked time.Duration
	// lead is how long before its time a certificate is renewed, at most.
	lead time.Duration
	// password identifies the password that the evidence would use.
	password string
	// askable says that the API server can be asked whether a certificate works.
	askable bool
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
// only a person can change.
const (
	firstPause  = time.Second
	lastPause   = 30 * time.Second
	firstDenied = 5 * time.Second
	lastDenied  = 5 * time.Minute
)

const (
	// askPause is how long a certificate that works is not asked about again.
	askPause = 5 * time.Minute
	// skew is by how much clocks may differ, or one may be set, without consequences.
	skew = time.Minute
)

// next decides what to do about one certificate. It is the only place where this is decided,
// for the daemon and the plugin.
func next(t attempts, c certificates, now time.Time) step {
	if t.Last.After(now.Add(skew)) || t.Next.After(now.Add(lastDenied)) {
		t.Next = time.Time{} // the clock was ahead, or was set back
	}
	s := step{at: t.Next}
	if hands := c.usable(t, now); len(hands) != 0 {
		s.use = hands[0]
	}
	if s.use != nil && s.use == c.have && !t.refused(s.use) {
		if due := c.due(now); due.After(s.at) {
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
	case s.use != nil && c.askable && !t.refused(s.use) && (checked < 0 || checked >= askPause) && now.Sub(s.use.Received).Abs() >= askPause:
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

// due is when the certificate in hand is renewed, whatever it says of itself: by the lifetime
// that was asked for, and now if it comes from the future.
func (c certificates) due(now time.Time) time.Time {
	p := c.have
	if p.Received.After(now.Add(skew)) {
		return now
	}
	due := p.Renew
	if latest := p.Received.Add(c.asked / 5 * 4); c.asked != 0 && due.After(latest) {
		due = latest
	}
	return due.Add(-min(c.lead, p.Leaf.NotAfter.Sub(p.Received)/20))
}

// end is when a certificate ends, or would if its lifetime were the one that is asked for.
func (c certificates) end(p *certstore.Pair) time.Time {
	if latest := p.Received.Add(c.asked); c.asked != 0 && p.Leaf.NotAfter.After(latest) {
		return latest
	}
	return p.Leaf.NotAfter
}

func (t attempts) refused(p *certstore.Pair) bool {
	return slices.Contains(t.Refused, csr.CredentialID(p.Leaf))
}

// pause doubles with each failure, and is reduced by up to half at random.
func pause(failures int, err error) time.Duration {
	first, last := firstPause, lastPause
	if isDenied(err) {
		first, last = firstDenied, lastDenied
	}
	d := first << min(max(failures-1, 0), 10)
	d = min(d, last)
	return d/2 + rand.N(d/2)
}

// left is the lifetime that a certificate has when it arrives. With a slow clock, more seems to
// be left than its whole lifetime: then that counts.
func left(received time.Time, leaf *x509.Certificate) time.Duration {
	return min(leaf.NotAfter.Sub(received), leaf.NotAfter.Sub(leaf.NotBefore))
}

// renewal is the time at which a certificate is replaced: at random between 65 and 80 % of the
// lifetime it has left when it arrives, or of the one that was asked for if that is shorter, so
// that nodes that came together do not come together again.
func (i *item) renewal(received time.Time, leaf *x509.Certificate) time.Time {
	lasts := left(received, leaf)
	if asked := i.asked(); asked != 0 {
		lasts = min(lasts, asked)
	}
	return received.Add(time.Duration((0.65 + 0.15*rand.Float64()) * float64(lasts)))
}

// asked is the lifetime that is asked for; 0 leaves it to the signer.
func (i *item) asked() time.Duration { return time.Duration(i.seconds) * time.Second }
