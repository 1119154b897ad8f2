package keys

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
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

// Open reads the keys and the state. It returns the error of each file that cannot be used, except that
// of a TPM that does not answer now, in which errors.Is finds [refusal.ErrRetry]: then all keys are published,
// and Run loads the key.
func Open(config Config) (*Keys, error) {
	config, err := config.prepared()
	if err != nil {
		return nil, err
	}
	k := &Keys{step: config.step, source: newSource(config), signers: map[string]*signer{}, failed: map[string]string{}}
	k.config = k.source.config
	k.peers.Store(&[]*jws.Key{})
	if err := k.open(); err != nil {
		return nil, errors.Join(err, k.source.close())
	}
	return k, nil
}

func (k *Keys) open() error {
	read, err := readState(k.config.StateFile, k.config.Issuer)
	if err != nil {
		return err
	}
	k.sweep()
	if err := safefile.CheckLasting(k.config.StateFile); err != nil && !errors.Is(err, safefile.ErrUnknown) {
		k.config.Log.Warn("after a restart of the machine, tokens of keys that no longer sign are refused: the state is lost", "error", err)
	}
	k.state = *read
	if k.written, err = k.state.marshal(); err != nil {
		return err
	}
	if err := k.revoke(); err != nil {
		return err
	}
	found, err := k.source.read()
	if err != nil {
		return err
	}
	wanted, err := publicKey(found[0].public, k.config.KeyID)
	if err != nil {
		return fmt.Errorf("%s: %w", k.source.path(), err)
	}
	if k.isRevoked(wanted) {
		return fmt.Errorf("%s: %w", k.source.path(), checkKeyFile.Refuse("the revoked key "+refusal.Quote(wanted.KeyID()), "a new key"))
	}
	now, publish, retain := k.config.Now(), time.Duration(k.config.Publish), time.Duration(k.config.Retain)
	if len(read.own) == 0 {
		k.config.Log.Warn("no state: the key signs at once", "stateFile", k.config.StateFile, "keyID", refusal.Text(wanted.KeyID()))
	}
	keys, err := own(read.own).restart(wanted, k.state.revoked, now, publish, retain)
	if err != nil {
		return err
	}
	if keys, err = k.addRetired(keys, now); err != nil {
		return err
	}
	if err := k.addVerifyOnly(keys); err != nil {
		return err
	}
	if k.config.PeersFolder != "" {
		k.folder = &folder{path: k.config.PeersFolder, files: map[string][]*jws.Key{}}
	}
	return k.begin(keys, own(read.own), found)
}

// begin publishes the keys for the first time. Before that, it writes the state.
func (k *Keys) begin(keys, before own, found []candidate) error {
	rotating, err := k.rotator(keys)
	if err != nil {
		return err
	}
	if err := k.load(context.Background(), keys, found); err != nil && !errors.Is(err, refusal.ErrRetry) {
		return err
	} else if err != nil {
		k.report(k.source.path(), err)
	}
	k.state.own = rotating.Published()
	k.readPeers()
	if err := k.save(); err != nil {
		if keys.unlike(before) {
			return err
		}
		k.report(k.config.StateFile, err)
	}
	k.rotating.Store(rotating)
	k.notice()
	k.reported()
	return nil
}

// sweep removes unfinished files of a killed program next to the state file.
func (k *Keys) sweep() {
	if dir, err := os.OpenRoot(filepath.Dir(k.config.StateFile)); err == nil {
		safefile.Sweep(dir, filepath.Base(k.config.StateFile))
		_ = dir.Close()
	}
}

// revoke adds the revoked key IDs of the configuration to the state.
func (k *Keys) revoke() error {
	all := slices.Sorted(slices.Values(slices.Concat(k.state.revoked, k.config.RevokedKeyIDs)))
	all = slices.Compact(all)
	if len(all) > maxRevoked {
		return refusal.Config("revokedKeyIDs", "and those of the state, "+strconv.Itoa(len(all)), "at most "+strconv.Itoa(maxRevoked))
	}
	for _, id := range all {
		if id == "" || len(id) > jws.MaxKeyIDSize {
			return refusal.Config("revokedKeyIDs", "with an ID of "+strconv.Itoa(len(id))+" bytes", "1 to "+strconv.Itoa(jws.MaxKeyIDSize)+" bytes")
		}
	}
	k.state.revoked = all
	return nil
}

func (k *Keys) isRevoked(key *jws.Key) bool {
	return slices.Contains(k.state.revoked, key.KeyID())
}

// addRetired adds the keys of RetiredFiles, each until Retain after it was first there.
func (k *Keys) addRetired(keys own, now time.Time) (own, error) {
	listed, err := readPublicFiles(k.config.RetiredFiles, maxRetired)
	if err != nil {
		return nil, fmt.Errorf("retiredFiles: %w", err)
	}
	k.state.retired = slices.DeleteFunc(slices.Clone(k.state.retired), func(e ending) bool {
		return find(listed, e.KeyID) == nil && !e.Until.After(now)
	})
	for _, key := range listed {
		if k.isRevoked(key) || keys.find(key.KeyID()) != nil {
			continue
		}
		i := slices.IndexFunc(k.state.retired, func(e ending) bool { return e.KeyID == key.KeyID() })
		if i < 0 {
			i = len(k.state.retired)
			k.state.retired = append(k.state.retired, ending{key.KeyID(), now.Add(time.Duration(k.config.Retain))})
		}
		if until := k.state.retired[i].Until; until.After(now) {
			keys = append(keys, jws.PublishedKey{Key: key, Until: until})
		}
	}
	if len(k.state.retired) > maxRetired || len(keys) > 1+maxRetired {
		return nil, refusal.Config("retiredFiles", "and the keys of the state: "+strconv.Itoa(len(keys)), "at most "+strconv.Itoa(maxRetired)+" keys that no longer sign")
	}
	return keys, nil
}

// addVerifyOnly reads VerifyOnlyFiles. A key that is published as well stays published.
func (k *Keys) addVerifyOnly(keys own) error {
	listed, err := readPublicFiles(k.config.VerifyOnlyFiles, maxVerifyOnly)
	if err != nil {
		return fmt.Errorf("verifyOnlyFiles: %w", err)
	}
	for _, key := range listed {
		switch {
		case k.isRevoked(key):
			k.config.Log.Warn("revoked key of verifyOnlyFiles left out", "keyID", refusal.Text(key.KeyID()))
		case keys.find(key.KeyID()) != nil:
			k.lasting = append(k.lasting, key)
		default:
			k.verifyOnly = append(k.verifyOnly, key)
		}
	}
	return nil
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
	for _, key := range slices.Concat(k.lasting, *k.peers.Load()) {
		if find(all, key.KeyID()) == nil {
			all = append(all, key)
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
