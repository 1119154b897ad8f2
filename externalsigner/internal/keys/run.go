package keys

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// Run reads the key file and the folder of peers again, at the interval of the configuration and when a key
// begins to sign, until ctx ends. Each change is logged. A file that cannot be used is logged and counted,
// and its last content stays in use. The error is nil.
func (k *Keys) Run(ctx context.Context) error {
	for {
		wait := time.Duration(k.config.ReloadInterval)
		if next := own(k.rotating.Load().Published()).next(); next != nil {
			wait = min(wait, max(next.SignsFrom.Sub(k.config.Now()), 10*time.Millisecond))
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		k.reload(ctx)
	}
}

// reload reads everything again once.
func (k *Keys) reload(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.notice()
	k.report(k.source.path(), k.reloadKey(ctx))
	k.readPeers()
	k.state.own = k.rotating.Load().Published()
	k.report(k.config.StateFile, k.save())
	k.notice()
	k.reported()
}

// errState says that a rotation waits for the state file.
var errState = errors.New("the new key waits until the state is written")

// reloadKey makes the key of the key file the one that is to sign.
func (k *Keys) reloadKey(ctx context.Context) error {
	found, wanted, err := k.readKey()
	if err != nil {
		return err
	}
	keys, changed, err := own(k.rotating.Load().Published()).follow(wanted, k.config.Now(), time.Duration(k.config.Publish), time.Duration(k.config.Retain))
	if err != nil {
		return fmt.Errorf("%s: %w", k.source.path(), err)
	}
	err = k.load(ctx, keys, found)
	if !changed || !k.has(wanted) {
		k.forget()
		return err
	}
	return errors.Join(err, k.change(keys))
}

// admit refuses a key that may not be published.
func (k *Keys) admit(key *jws.Key) error {
	switch {
	case k.isRevoked(key):
		return checkKeyFile.Refuse("the revoked key "+refusal.Quote(key.KeyID()), "a new key")
	case find(k.verifyOnly, key.KeyID()) != nil:
		return checkKeyFile.Refuse("the key "+refusal.Quote(key.KeyID())+" of verifyOnlyFiles", "another key, or a restart of the program")
	}
	return nil
}

// change publishes other keys, once the state has been written.
func (k *Keys) change(keys own) error {
	before := k.state.own
	k.state.own = keys
	if err := k.save(); err != nil {
		k.state.own = before
		k.report(k.config.StateFile, err)
		return errState
	}
	rotating, err := k.rotator(keys)
	if err != nil {
		k.state.own = before
		return err
	}
	k.step("before the new key is published")
	k.rotating.Store(rotating)
	k.step("the new key is published")
	k.rotations.Add(1)
	return nil
}

// forget drops the signers of keys that no longer sign.
func (k *Keys) forget() {
	published := own(k.rotating.Load().Published())
	for id := range k.signers {
		if at := slices.IndexFunc(published, func(p jws.PublishedKey) bool { return p.Key.KeyID() == id && p.Until.IsZero() }); at < 0 {
			delete(k.signers, id)
		}
	}
}

// readPeers reads the folder of peers. A key whose file is gone leaves after Retain.
func (k *Keys) readPeers() {
	now := k.config.Now()
	var there []*jws.Key
	if k.folder != nil {
		k.folder.read(k.report)
		there = k.folder.keys(k.report)
	}
	unseen := k.folder != nil && !k.folder.seen
	var kept []jws.PublishedKey
	for _, p := range k.state.peers {
		in := find(there, p.Key.KeyID())
		gone, only := !unseen && (in == nil || !same(in, p.Key)), find(k.verifyOnly, p.Key.KeyID()) != nil
		switch {
		case k.isRevoked(p.Key) || only || gone && !p.Until.IsZero() && !p.Until.After(now):
			k.config.Log.Info("key of a peer is no longer published", "keyID", refusal.Text(p.Key.KeyID()), "revoked", k.isRevoked(p.Key))
			continue
		case !gone:
			p.Until = time.Time{}
		case p.Until.IsZero():
			p.Until = now.Add(time.Duration(k.config.Retain))
			k.config.Log.Info("key of a peer has left the folder, and is published for a while", "keyID", refusal.Text(p.Key.KeyID()), "until", seconds(p.Until))
		}
		kept = append(kept, p)
	}
	for _, key := range there {
		kept = k.addPeer(kept, key)
	}
	k.state.peers = kept
	published := []*jws.Key{}
	for _, p := range kept {
		published = append(published, p.Key)
	}
	k.peers.Store(&published)
}

// addPeer adds a key of the folder unless it is there, revoked, or has the ID of another.
func (k *Keys) addPeer(kept []jws.PublishedKey, key *jws.Key) []jws.PublishedKey {
	path, id := k.config.PeersFolder+" "+key.KeyID(), refusal.Quote(key.KeyID())
	there := own(kept).find(key.KeyID())
	if there == nil {
		there = own(k.state.own).find(key.KeyID())
	}
	var err error
	switch {
	case there != nil && same(there.Key, key):
	case there != nil:
		err = checkPeers.Refuse("another key with the ID "+id+", which is published", "one key for each ID")
	case k.isRevoked(key):
		err = checkPeers.Refuse("the revoked key "+id, "a folder without it")
	case find(k.verifyOnly, key.KeyID()) != nil:
		err = checkPeers.Refuse("the key "+id+" of verifyOnlyFiles, which appears in no discovery document", "a key in one of them")
	case len(kept) >= maxPeers:
		err = checkPeers.Refuse("more keys, with those that have left the folder", "at most as many as are published")
	default:
		kept = append(kept, jws.PublishedKey{Key: key})
		k.config.Log.Info("key of a peer published", "keyID", refusal.Text(key.KeyID()))
	}
	k.report(path, err)
	return kept
}

// notice logs the changes of the signer's own keys.
func (k *Keys) notice() {
	now := own(k.rotating.Load().Published())
	for _, p := range now {
		log := k.config.Log.With("keyID", refusal.Text(p.Key.KeyID()), "algorithm", string(p.Key.Algorithm()))
		before := k.shown.find(p.Key.KeyID())
		switch {
		case !p.SignsFrom.IsZero() && (before == nil || !before.SignsFrom.Equal(p.SignsFrom)):
			log.Info("new key published: until it signs, a restart of the program pauses signing unless the key before it is the second in the key file", "signsFrom", seconds(p.SignsFrom))
		case !p.Until.IsZero() && (before == nil || before.Until.IsZero()):
			log.Info("key no longer signs, and is published for a while", "until", seconds(p.Until))
		}
	}
	for _, p := range k.shown {
		if now.find(p.Key.KeyID()) == nil {
			k.config.Log.Info("key is no longer published", "keyID", refusal.Text(p.Key.KeyID()))
		}
	}
	if len(k.shown) == 0 || !same(k.shown[0].Key, now[0].Key) {
		k.began(now)
	}
	k.shown = now
	k.forget()
}

// began notes that another key signs.
func (k *Keys) began(now own) {
	since := k.config.Now()
	if before := k.shown.find(now[0].Key.KeyID()); before != nil && !before.SignsFrom.IsZero() {
		since = before.SignsFrom
	}
	signs := k.signer(now[0].Key)
	k.since.Store(&since)
	k.signing.Store(signs)
	if log := k.config.Log.With("keyID", refusal.Text(now[0].Key.KeyID())); signs.at.Load() != nil {
		log.Info("key signs")
	} else {
		log.Error("key is to sign, and its private key is missing: no tokens are signed", "reason", signs.why())
	}
}
