package keys

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// Open reads the keys and the state. At the first start it returns the error of each file that cannot be used.
//
// With a state it starts although the key file cannot be used, the TPM does not answer, or the state cannot be
// written: the keys of the state are published, so that verifiers accept their tokens. Then no new key is
// published, and Sign fails with [refusal.ErrRetry] if the key that signs is missing. Run tries again.
func Open(config Config) (*Keys, error) {
	config, err := config.prepared()
	if err != nil {
		return nil, err
	}
	k := &Keys{step: config.step, source: newSource(config), signers: map[string]*signer{}, failed: map[string]string{}}
	k.config = k.source.config
	k.peers.Store(&[]*jws.Key{})
	if k.config.PeersFolder != "" {
		k.folder = &folder{path: k.config.PeersFolder, files: map[string][]*jws.Key{}}
	}
	if err := k.open(); err != nil {
		return nil, errors.Join(err, k.source.close())
	}
	k.notice()
	k.reported()
	return k, nil
}

func (k *Keys) open() error {
	before, err := k.readState()
	if err != nil {
		return err
	}
	retired, err := readPublicFiles(k.config.RetiredFiles, maxRetired)
	if err != nil {
		return fmt.Errorf("retiredFiles: %w", err)
	}
	verifyOnly, err := readPublicFiles(k.config.VerifyOnlyFiles, maxVerifyOnly)
	if err != nil {
		return fmt.Errorf("verifyOnlyFiles: %w", err)
	}
	begin := func(wanted *jws.Key, found []candidate) error {
		return k.begin(before, wanted, found, retired, verifyOnly)
	}
	found, wanted, err := k.readKey()
	if err == nil {
		err = begin(wanted, found)
	}
	if err == nil || len(before) == 0 || k.isRevoked(before[0].Key) {
		return err
	}
	k.report(k.source.path(), err)
	return begin(before[0].Key, found)
}

// readState reads the state, and returns the signer's own keys in it.
func (k *Keys) readState() (own, error) {
	read, err := readState(k.config.StateFile, k.config.Issuer)
	if err != nil {
		return nil, err
	}
	k.sweep()
	if err := safefile.CheckLasting(k.config.StateFile); err != nil && !errors.Is(err, safefile.ErrUnknown) {
		k.config.Log.Warn("after a restart of the machine, tokens of keys that no longer sign are refused: the state is lost", "error", err)
	}
	k.state = *read
	if k.written, err = k.state.marshal(); err != nil {
		return nil, err
	}
	if len(read.own) == 0 {
		k.config.Log.Warn("no state: the key of the configuration signs at once", "stateFile", k.config.StateFile)
	}
	return read.own, k.revoke()
}

// readKey reads the source, and returns the public key that is to sign.
func (k *Keys) readKey() ([]candidate, *jws.Key, error) {
	found, err := k.source.read()
	if err != nil {
		return nil, nil, err
	}
	wanted, err := publicKey(found[0].public, k.config.KeyID)
	if err == nil {
		err = k.admit(wanted)
	}
	if err != nil {
		return found, nil, fmt.Errorf("%s: %w", k.source.path(), err)
	}
	return found, wanted, nil
}

// begin publishes the keys for the first time, with one that is to sign. Before that, it writes the state. It may
// be called again after an error.
func (k *Keys) begin(before own, wanted *jws.Key, found []candidate, retired, verifyOnly []*jws.Key) error {
	now := k.config.Now()
	keys, err := before.restart(wanted, k.state.revoked, now, time.Duration(k.config.Publish), time.Duration(k.config.Retain))
	if err == nil {
		keys, err = k.addRetired(keys, retired, now)
	}
	if err != nil {
		return err
	}
	k.addVerifyOnly(keys, verifyOnly)
	rotating, err := k.rotator(keys)
	if err != nil {
		return err
	}
	isNew := before.find(wanted.KeyID()) == nil
	switch err := k.load(context.Background(), keys, found); {
	case err == nil:
	case len(before) == 0 && !errors.Is(err, refusal.ErrRetry), len(before) != 0 && isNew && !k.has(wanted):
		return err
	default:
		k.report(k.source.path(), err)
	}
	k.state.own = rotating.Published()
	k.readPeers()
	if err := k.save(); err != nil {
		if isNew {
			return err
		}
		k.report(k.config.StateFile, err)
	}
	k.rotating.Store(rotating)
	return nil
}

// sweep removes unfinished files of a killed program next to the state file.
func (k *Keys) sweep() {
	if dir, err := os.OpenRoot(filepath.Dir(k.config.StateFile)); err == nil {
		safefile.Sweep(dir, filepath.Base(k.config.StateFile))
		_ = dir.Close()
	}
}

// revoke adds the revoked key IDs of the configuration to the state, and the digests of the keys of the state that
// have one of them: a key that was published under an ID of its own is in other files without that.
func (k *Keys) revoke() error {
	all := slices.Concat(k.state.revoked, k.config.RevokedKeyIDs)
	for _, p := range slices.Concat(k.state.own, k.state.peers) {
		if isRevoked(all, p.Key) {
			all = append(all, digestID(p.Key))
		}
	}
	slices.Sort(all)
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

func (k *Keys) isRevoked(key *jws.Key) bool { return isRevoked(k.state.revoked, key) }

// isRevoked reports whether a key's ID is revoked, or the digest of its public key, whatever ID it has here.
func isRevoked(revoked []string, key *jws.Key) bool {
	return len(revoked) != 0 && (slices.Contains(revoked, key.KeyID()) || slices.Contains(revoked, digestID(key)))
}

// digestID returns the ID that a key has where no other is configured.
func digestID(key *jws.Key) string {
	derived, err := jws.NewKey(key.Public(), jws.KeyOptions{})
	if err != nil {
		return key.KeyID() // of a key that is one already, which does not happen
	}
	return derived.KeyID()
}

// addRetired adds the keys of RetiredFiles, each until Retain after it was first there.
func (k *Keys) addRetired(keys own, listed []*jws.Key, now time.Time) (own, error) {
	k.state.retired = slices.DeleteFunc(slices.Clone(k.state.retired), func(e ending) bool {
		return find(listed, e.KeyID) == nil && !e.Until.After(now)
	})
	for _, key := range listed {
		if k.isRevoked(key) {
			continue
		}
		i := slices.IndexFunc(k.state.retired, func(e ending) bool { return e.KeyID == key.KeyID() })
		if i < 0 {
			i = len(k.state.retired)
			k.state.retired = append(k.state.retired, ending{key.KeyID(), now.Add(time.Duration(k.config.Retain))})
		}
		if until := k.state.retired[i].Until; until.After(now) && keys.find(key.KeyID()) == nil {
			keys = append(keys, jws.PublishedKey{Key: key, Until: until})
		}
	}
	if len(k.state.retired) > maxRetired || len(keys) > 1+maxRetired {
		return nil, refusal.Config("retiredFiles", "and the keys of the state: "+strconv.Itoa(len(keys)), "at most "+strconv.Itoa(maxRetired)+" keys that no longer sign")
	}
	return keys, nil
}

// addVerifyOnly adds the keys of VerifyOnlyFiles. A key that is published as well stays published.
func (k *Keys) addVerifyOnly(keys own, listed []*jws.Key) {
	k.lasting, k.verifyOnly = nil, nil
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
}
