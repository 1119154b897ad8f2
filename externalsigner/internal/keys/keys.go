package keys

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nodeattest/nodeattest/jws"
)

// Keys are the signer's keys: a jws.Signer, and a jws.KeySet with Overlap. It is safe for concurrent use.
type Keys struct {
	config     Config
	verifyOnly []*jws.Key
	// lasting are keys of VerifyOnlyFiles that were published at the start: they stay so until the end.
	lasting  []*jws.Key
	rotating atomic.Pointer[jws.RotatingSigner]
	peers    atomic.Pointer[[]*jws.Key]
	signing  atomic.Pointer[signer] // the key that was last seen to sign
	since    atomic.Pointer[time.Time]

	failures, stateFailures, rotations atomic.Uint64

	mu      sync.Mutex        // held while files are read
	step    func(name string) // called at each step of a change, for tests
	source  source
	signers map[string]*signer // of the key that signs and of the next, by key ID
	folder  *folder            // nil without peers
	state   state              // as it is in memory
	written []byte             // the state file
	shown   own                // the keys as they were last logged
	failed  map[string]string  // the error of each file that could not be used in this reading, by its path
	failing map[string]string  // the errors of the last reading
}

// Status is for metrics.
type Status struct {
	// Published are the signer's own published keys, as jws.RotatingSigner.Published returns them.
	Published []jws.PublishedKey
	// SigningSince is when the first of them began to sign, or when the program started.
	SigningSince time.Time
	// Ready says that its private key is there.
	Ready bool
	// Peers is how many keys of peers are published.
	Peers int
	// Failures is how often a file could not be read again, since the start.
	Failures uint64
	// StateFailures is how often the state could not be written.
	StateFailures uint64
	// Rotations is how many new keys were published.
	Rotations uint64
}

// rotator makes the signer of the given keys. The next one signs once it has been published for Publish.
func (k *Keys) rotator(keys own) (*jws.RotatingSigner, error) {
	config := jws.RotationConfig{Publish: time.Duration(k.config.Publish), Retain: time.Duration(k.config.Retain), Now: k.config.Now}
	next := keys.next()
	for _, key := range keys[1:] {
		if !key.Until.IsZero() {
			config.Retired = append(config.Retired, key)
		}
	}
	rotating, err := jws.NewRotatingSigner(k.signer(keys[0].Key), config)
	if err == nil && next != nil {
		_, err = rotating.Rotate(k.signer(next.Key))
	}
	return rotating, err
}

// signer returns the signer of a key, without a private key for a new one.
func (k *Keys) signer(key *jws.Key) *signer {
	if s := k.signers[key.KeyID()]; s != nil && same(s.key, key) {
		return s
	}
	s := &signer{key: key}
	k.signers[key.KeyID()] = s
	return s
}

// has reports whether the private key of a key that signs, or is the next, is there.
func (k *Keys) has(key *jws.Key) bool {
	s := k.signers[key.KeyID()]
	return s != nil && s.at.Load() != nil
}

// load gives the key that signs and the next one their private keys, as far as they are found.
func (k *Keys) load(ctx context.Context, keys own, found []candidate) (err error) {
	wanted := keys[:1]
	if keys.next() != nil {
		wanted = keys[:2]
	}
	for _, key := range wanted {
		s := k.signer(key.Key)
		if s.at.Load() != nil {
			continue
		}
		i := slices.IndexFunc(found, func(c candidate) bool { return samePublic(c.public, key.Key.Public()) })
		if i < 0 {
			s.miss("its private key is no longer in " + k.source.path() + ", and the next key is not published for long enough")
			continue
		}
		private, missing := k.source.load(ctx, &found[i])
		if missing == nil {
			missing = s.use(private)
		}
		if missing != nil {
			s.miss(missing.Error())
			err = errors.Join(err, missing)
		}
	}
	return err
}

// save writes the state if it has changed, or its file is gone.
func (k *Keys) save() error {
	text, err := k.state.marshal()
	if err == nil && bytes.Equal(text, k.written) {
		if _, gone := os.Lstat(k.config.StateFile); gone == nil {
			return nil
		}
	}
	if err == nil {
		err = k.write(text)
	}
	if err == nil {
		k.written = text
	}
	return err
}

// report logs and counts the error of a file, once for each text of it.
func (k *Keys) report(path string, err error) {
	if err == nil {
		return
	}
	if path == k.config.StateFile {
		k.stateFailures.Add(1)
	} else {
		k.failures.Add(1)
	}
	if k.failing[path] != err.Error() && k.failed[path] != err.Error() {
		k.config.Log.Error("file not used: its last content stays in use, and it is tried again", "file", path, "error", err)
	}
	k.failed[path] = err.Error()
}

// reported ends one reading of all files.
func (k *Keys) reported() {
	for path := range k.failing {
		if k.failed[path] == "" {
			k.config.Log.Info("file used again, or gone", "file", path)
		}
	}
	k.failing, k.failed = k.failed, map[string]string{}
}

// Sign signs with the key whose turn it is. Its errors are from jws.RotatingSigner, or
// [refusal.ErrRetry] while that key's private part is missing.
func (k *Keys) Sign(ctx context.Context, payload []byte) (*jws.Signature, error) {
	return k.rotating.Load().Sign(ctx, payload)
}

// Overlap returns how long a key is published before it signs, and after it signed.
func (k *Keys) Overlap() (publish, retain time.Duration) {
	return time.Duration(k.config.Publish), time.Duration(k.config.Retain)
}

// Keys returns the published key with that ID if there is one, or all if keyID is empty: the signer's own,
// then the keys of peers.
func (k *Keys) Keys(ctx context.Context, keyID string) ([]*jws.Key, error) {
	all, err := k.rotating.Load().Keys(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, more := range [][]*jws.Key{k.lasting, *k.peers.Load()} { // each has an ID once
		before := all
		for _, key := range more {
			if find(before, key.KeyID()) == nil {
				all = append(all, key)
			}
		}
	}
	if keyID != "" {
		all = slices.DeleteFunc(all, func(key *jws.Key) bool { return key.KeyID() != keyID })
	}
	return all, nil
}

// VerifyOnly are the keys that only verify, as they were at the start.
func (k *Keys) VerifyOnly() []*jws.Key { return slices.Clone(k.verifyOnly) }

// Status is the state now.
func (k *Keys) Status() Status {
	s := Status{
		Published: k.rotating.Load().Published(), Peers: len(*k.peers.Load()),
		Failures: k.failures.Load(), StateFailures: k.stateFailures.Load(), Rotations: k.rotations.Load(),
	}
	if since := k.since.Load(); since != nil {
		s.SigningSince = *since
	}
	if signs := k.signing.Load(); signs != nil {
		s.Ready = signs.at.Load() != nil
	}
	return s
}

// Close closes the TPM. Nothing may sign any more.
func (k *Keys) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.source.close()
}
