package authenticator

import (
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
)

// snapshot holds the stored certificates and the state as they were last read, so that a step of the
// loop reads each file once. It is for one goroutine.
type snapshot struct {
	a      *Authenticator
	by     caller
	now    time.Time
	state  state
	stored map[*slot]certificates
	files  []fs.FileInfo // of the plugin, before they were read: Authenticator.stat
	followed
	parts // of an attempt
}

func (a *Authenticator) snapshot(by caller) *snapshot { return (&snapshot{a: a, by: by}).refresh() }

// refresh drops everything that was read before.
func (v *snapshot) refresh() *snapshot {
	if v.by.plugin {
		v.files = v.a.stat()
	}
	v.state, v.now, v.stored = v.a.readState(), v.a.config.Now(), map[*slot]certificates{}
	return v
}

// certificates returns the certificates of a slot.
func (v *snapshot) certificates(s *slot) certificates {
	c, ok := v.stored[s]
	if !ok {
		c = certificates{have: v.a.load(s, s.file), previous: v.a.load(s, s.previous), wanted: &s.Wanted, password: v.a.password()}
		if v.by.daemon && !s.Once { // so that the plugin, which keeps the kubelet waiting, has nothing to do
			c.lead = time.Minute
		}
		v.stored[s] = c
	}
	return c
}

// next returns the next step for one certificate.
func (v *snapshot) next(s *slot) step { return next(v.state[s.file], v.certificates(s), v.now) }

// usable returns the certificates of a slot that have not expired, the best first.
func (v *snapshot) usable(s *slot) []*certstore.Pair {
	return v.certificates(s).usable(v.state[s.file], v.now)
}

// current returns the certificate in use, or nil if none is usable or the API server rejected it.
func (v *snapshot) current(s *slot) *certstore.Pair {
	if all := v.usable(s); len(all) != 0 && !v.state[s.file].refused(all[0]) {
		return all[0]
	}
	return nil
}

// load reads a stored pair. It returns nil if the file does not exist or, after logging it, is invalid.
func (a *Authenticator) load(s *slot, file string) *certstore.Pair {
	if file == "" {
		return nil
	}
	p, err := s.store.ReadPair(file)
	if errors.Is(err, fs.ErrNotExist) && s.store != a.store {
		p, err = a.store.ReadPair(file) // from before KeyDir was set
	}
	if err == nil {
		err = s.Check(p.Leaf)
	}
	if err == nil {
		return p
	}
	if !errors.Is(err, fs.ErrNotExist) {
		a.warnOnce("stored certificate is not used", err, slog.String("file", s.store.Path(file)))
	}
	return nil
}

// warnOnce logs a warning unless the last warning with this message and object had the same error.
// A nil error logs nothing: the next one is logged in any case.
func (a *Authenticator) warnOnce(message string, why error, object slog.Attr) {
	text := ""
	if why != nil {
		text = why.Error()
	}
	if before, _ := a.logged.Swap(message+object.String(), text); text != "" && before != text {
		a.config.Log.Warn(message, object, "why", text)
	}
}

// password identifies the password that the evidence would use now: the identifier changes with the
// password's file or, for a password without a file, with the process.
func (a *Authenticator) password() string {
	if k, ok := a.config.Kind.(interface{ password() string }); ok {
		if id := k.password(); id != "" {
			return id
		}
	}
	return a.id
}
