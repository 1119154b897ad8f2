package authenticator

import (
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/nodecert"
)

// maxStateSize bounds the size of the state file, in bytes.
const maxStateSize = 64 << 10

// state records the attempts for each certificate, by its file name.
type state map[string]attempts

// attempts are the attempts to get one certificate.
type attempts struct {
	// Failures is the number of failed attempts since the last success.
	Failures int `json:"failures,omitempty"`
	// Last is when the last attempt began, or when this record last changed. Next is the earliest
	// time for the next attempt.
	Last time.Time `json:"last,omitzero"`
	Next time.Time `json:"next,omitzero"`
	// Error is the error of the last attempt, and Reason its name among a fixed set of names.
	Error  string `json:"error,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Result is of the last attempt.
	Result string `json:"result,omitempty"`
	counts
	// Refused has the credential IDs of the certificates that the API server rejected (401).
	Refused []string `json:"refused,omitempty"`
	// Password identifies the password that was wrong.
	Password string `json:"password,omitempty"`
	// Checked is when the certificate was last tried at the API server.
	Checked time.Time `json:"-"`
}

// counts are the attempts that have ended, by their results, as long as the state file has been there.
type counts struct {
	Obtained uint64 `json:"obtained,omitempty"`
	Denied   uint64 `json:"denied,omitempty"`
	Failed   uint64 `json:"failed,omitempty"`
}

// The results of an attempt.
const (
	resultObtained   = "obtained"
	resultDenied     = "denied"
	resultFailed     = "failed"
	resultUnfinished = "unfinished"
)

// ended counts an attempt that has ended with err, and records its result.
func (t *attempts) ended(err error) {
	switch t.Reason = reason(err); {
	case err == nil:
		t.Result = resultObtained
		t.Obtained++
	case isDenied(err):
		t.Result = resultDenied
		t.Denied++
	default:
		t.Result = resultFailed
		t.Failed++
	}
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

// readState reads the state without the lock. For each certificate, it returns the latest record of
// those on disk and in memory, as the disk may be full.
func (a *Authenticator) readState() state {
	now := a.config.Now()
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
	for _, s := range a.slots {
		for _, one := range known {
			t, ok := one[s.file]
			latest, has := all[s.file]
			if ok && (!has || t.Last.After(latest.Last) && t.Last.Before(now.Add(nodecert.Skew))) {
				t.Checked = a.memory[s.file].Checked
				all[s.file] = t
			}
		}
	}
	return all
}

// folders returns the folders of the state: Dir and, for when that cannot be written, KeyDir.
func (a *Authenticator) folders() []*certstore.Store {
	if keys := a.slots[0].store; keys != a.store {
		return []*certstore.Store{a.store, keys}
	}
	return []*certstore.Store{a.store}
}

// begin records that an attempt begins, as if it had failed, so that it counts even if the
// process is killed in the middle. It fails if the state cannot be written.
func (a *Authenticator) begin(l *certstore.Lock, s *slot) error {
	return a.note(l, s.file, func(t *attempts, now time.Time) {
		t.Failures++
		t.Last, t.Next = now, now.Add(pause(t.Failures, nil))
		t.Error, t.Reason, t.Result = unfinished, "Unfinished", resultUnfinished
	})
}

// unfinished is the error of an attempt from its beginning to its end.
const unfinished = "the last attempt has not ended: it waits for the control plane, or was interrupted"

// failed reports whether the last attempt has ended, with an error.
func (t attempts) failed() bool { return t.Failures > 0 && t.Error != unfinished }

// end records the result of an attempt with that password.
func (a *Authenticator) end(l *certstore.Lock, s *slot, password string, err error) error {
	return a.note(l, s.file, func(t *attempts, now time.Time) {
		t.ended(err)
		if err == nil {
			*t = attempts{Last: t.Last, Next: now.Add(firstPause), Checked: now, Result: t.Result, counts: t.counts}
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
	a.config.Log.Warn("the API server rejected the client certificate (401); requesting a new one", "credential", csr.CredentialID(p.Leaf), "until", p.Leaf.NotAfter)
	return a.note(l, ClientFile, func(t *attempts, now time.Time) {
		if t.Last = now; !t.refused(p) {
			t.Refused = append(t.Refused[max(0, len(t.Refused)-1):], csr.CredentialID(p.Leaf)) // at most two are stored
		}
	})
}

// note changes the record of one certificate, in memory and, with a lock, on disk.
func (a *Authenticator) note(l *certstore.Lock, file string, change func(t *attempts, now time.Time)) error {
	now := a.config.Now().UTC().Truncate(time.Millisecond)
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
	for _, folder := range a.folders() {
		failed := l.In(folder).Write(stateFile, append(text, '\n'))
		if failed == nil {
			a.warnOnce("cannot write the state; writing it to keyDir instead", err, slog.String("folder", a.store.Path("")))
			return nil
		}
		err = errors.Join(err, failed)
	}
	return err
}
