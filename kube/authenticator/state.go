package authenticator

import (
	"crypto/x509"
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
)

// maxStateSize bounds the size of the state file, in bytes.
const maxStateSize = 64 << 10

// state is what outlasts a process in addition to the certificates, by file name.
type state map[string]attempts

// attempts are the attempts to get one certificate.
type attempts struct {
	// Failures is how many have failed since the last success.
	Failures int `json:"failures,omitempty"`
	// Last is when the last one began. Next is the earliest time for the next one.
	Last time.Time `json:"last,omitzero"`
	Next time.Time `json:"next,omitzero"`
	// Error is how the last one ended.
	Error string `json:"error,omitempty"`
}

// parseState reads the file. A file that cannot be read counts as empty: then the next attempt
// is due at once.
func parseState(text []byte) state {
	s := state{}
	if json.Unmarshal(text, &s) != nil || s == nil {
		return state{}
	}
	for name, a := range s {
		if a.Failures < 0 {
			a.Failures = 0
			s[name] = a
		}
	}
	return s
}

// readState reads the state without the lock.
func (a *Authenticator) readState() state {
	text, err := a.store.Read(stateFile, maxStateSize)
	if err != nil {
		return state{}
	}
	return parseState(text)
}

// begin records that an attempt begins, as if it had failed, so that it counts even if the
// process is killed in the middle. The error says that nothing can be written.
func (a *Authenticator) begin(l *certstore.Lock, i *item) error {
	return a.note(l, i, func(t *attempts) {
		t.Failures++
		t.Last = a.c.Now().UTC().Truncate(time.Millisecond)
		t.Next = t.Last.Add(pause(t.Failures, nil))
		t.Error = "it did not come to its end"
	})
}

// end records how the attempt ended.
func (a *Authenticator) end(l *certstore.Lock, i *item, err error) error {
	return a.note(l, i, func(t *attempts) {
		if err == nil {
			*t = attempts{Last: t.Last}
			return
		}
		t.Next = a.c.Now().UTC().Truncate(time.Millisecond).Add(pause(t.Failures, err))
		if t.Error = err.Error(); len(t.Error) > maxErrorSize {
			t.Error = t.Error[:maxErrorSize]
		}
	})
}

const maxErrorSize = 4096

func (a *Authenticator) note(l *certstore.Lock, i *item, change func(*attempts)) error {
	s := a.readState()
	t := s[i.file]
	change(&t)
	s[i.file] = t
	for name := range s { // left by an older configuration
		if !a.keeps(name) {
			delete(s, name)
		}
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return l.Write(stateFile, append(text, '\n'))
}

func (a *Authenticator) keeps(file string) bool {
	for _, i := range a.items {
		if i.file == file {
			return true
		}
	}
	return false
}

// How long to wait before the next attempt: at first, and at most. A denial is a decision that
// only a person can change.
const (
	firstPause  = time.Second
	lastPause   = 30 * time.Second
	firstDenied = 5 * time.Second
	lastDenied  = 5 * time.Minute
)

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

// renewal is the time at which a certificate is replaced: at random between 65 and 80 % of the
// lifetime it had left when it arrived, so that nodes that came together do not come together
// again. With a slow clock, more seems to be left than its whole lifetime: then that counts.
func renewal(received time.Time, leaf *x509.Certificate) time.Time {
	left := min(leaf.NotAfter.Sub(received), leaf.NotAfter.Sub(leaf.NotBefore))
	return received.Add(time.Duration((0.65 + 0.15*rand.Float64()) * float64(left)))
}

// daemonLead is how long before that time the daemon renews, so that the plugin, which keeps
// the kubelet waiting, has nothing to do.
func daemonLead(p *certstore.Pair) time.Duration {
	return min(p.Leaf.NotAfter.Sub(p.Received)/20, time.Minute)
}
