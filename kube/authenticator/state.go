package authenticator

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/nodecert"
)

// maxStateSize bounds the size of the state file, in bytes.
const maxStateSize = 64 << 10

// state is what outlasts a process in addition to the certificates, by file name.
type state map[string]attempts

// attempts are the attempts to get one certificate.
type attempts struct {
	// Failures is how many have failed since the last success.
	Failures int `json:"failures,omitempty"`
	// Last is when the last one began, or something else of this became known. Next is the
	// earliest time for the next one.
	Last time.Time `json:"last,omitzero"`
	Next time.Time `json:"next,omitzero"`
	// Error is how the last one ended.
	Error string `json:"error,omitempty"`
	// Refused are the certificates, by their credential IDs, with which the API server knew
	// nobody (401).
	Refused []string `json:"refused,omitempty"`
	// Password identifies the password that was wrong.
	Password string `json:"password,omitempty"`
	// Checked is when the API server was last asked about the certificate.
	Checked time.Time `json:"-"`
}

// parseState reads the file. A file that cannot be read counts as empty: then the next attempt
// is due at once.
func parseState(text []byte) state {
	s := state{}
	if json.Unmarshal(text, &s) != nil || s == nil {
		return state{}
	}
	return s
}

// readState reads the state without the lock: of what is in the two folders and in memory, that
// which is later counts, as a disk may be full. What is kept no more is left out.
func (a *Authenticator) readState() state {
	now := a.c.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.merged(now)
}

func (a *Authenticator) merged(now time.Time) state {
	known := []state{a.memory}
	for _, folder := range a.folders() {
		if text, err := folder.Read(stateFile, maxStateSize); err == nil {
			known = append(known, parseState(text))
		}
	}
	all := state{}
	for _, i := range a.items {
		for _, s := range known {
			t, ok := s[i.file]
			best, has := all[i.file]
			if ok && (!has || t.Last.After(best.Last) && t.Last.Before(now.Add(nodecert.Skew))) {
				t.Checked = a.memory[i.file].Checked
				all[i.file] = t
			}
		}
	}
	return all
}

// folders are where the state may be: its own folder and, where that cannot be written, the one of
// the client certificate.
func (a *Authenticator) folders() []*certstore.Store {
	if keys := a.items[0].store; keys != a.store {
		return []*certstore.Store{a.store, keys}
	}
	return []*certstore.Store{a.store}
}

// begin records that an attempt begins, as if it had failed, so that it counts even if the
// process is killed in the middle. The error says that nothing can be written.
func (a *Authenticator) begin(l *certstore.Lock, i *item) error {
	return a.note(l, i.file, func(t *attempts, now time.Time) {
		t.Failures++
		t.Last, t.Next = now, now.Add(pause(t.Failures, nil))
		t.Error = "it was interrupted"
	})
}

// end records how the attempt ended, which used that password.
func (a *Authenticator) end(l *certstore.Lock, i *item, password string, err error) error {
	return a.note(l, i.file, func(t *attempts, now time.Time) {
		if err == nil {
			*t = attempts{Last: t.Last, Next: now.Add(firstPause), Checked: now}
			return
		}
		t.Next, t.Password = now.Add(pause(t.Failures, err)), ""
		if errors.Is(err, tpmkey.ErrPassword) || errors.Is(err, tpm2.TPMRCAuthFail) {
			t.Password = password
		}
		if t.Error = err.Error(); len(t.Error) > maxErrorSize {
			t.Error = t.Error[:maxErrorSize]
		}
	})
}

const maxErrorSize = 4096

// refuse records that the API server rejected a client certificate (401).
func (a *Authenticator) refuse(l *certstore.Lock, p *certstore.Pair) error {
	a.c.Log.Warn("the API server does not know the client certificate", "credential", csr.CredentialID(p.Leaf), "until", p.Leaf.NotAfter)
	return a.note(l, ClientFile, func(t *attempts, now time.Time) {
		if t.Last = now; !t.refused(p) {
			t.Refused = append(t.Refused[max(0, len(t.Refused)-1):], csr.CredentialID(p.Leaf)) // the two that there may be
		}
	})
}

// note changes what is known about one certificate, in memory and, with a lock, on disk.
func (a *Authenticator) note(l *certstore.Lock, file string, change func(t *attempts, now time.Time)) error {
	now := a.c.Now().UTC().Truncate(time.Millisecond)
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.merged(now)
	t := s[file]
	change(&t, now)
	s[file], a.memory[file] = t, t
	if l == nil {
		return nil
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	for n, folder := range a.folders() {
		failed := l.In(folder).Write(stateFile, append(text, '\n'))
		if err = errors.Join(err, failed); failed == nil {
			a.sayState(n, err)
			return nil
		}
	}
	return err
}

// sayState logs, once in a row, that the state is in the n-th folder, as it could not be written before.
func (a *Authenticator) sayState(n int, why error) {
	text := ""
	if why != nil {
		text = why.Error()
	}
	if before, _ := a.said.Swap(stateFile, text); text != "" && before != text {
		a.c.Log.Warn("the state is kept with the certificates, as its own folder cannot be written", "file", a.folders()[n].Path(stateFile), "why", text)
	}
}
