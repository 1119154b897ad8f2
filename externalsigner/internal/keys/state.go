package keys

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkState: the state file is damaged, of another issuer, or of a later version of the program.
const checkState refusal.Check = "signer-state"

// stateVersion is the version of the state's format.
const stateVersion = 1

// state is the content of the state file.
type state struct {
	issuer string
	// own are the signer's own published keys in the order of jws.RotatingSigner.Published: the one
	// that signs, the next if there is one, and the keys that no longer sign. Empty before the first start.
	own []jws.PublishedKey
	// retired are the keys of RetiredFiles, those whose time is over too, which would otherwise begin
	// again.
	retired []ending
	// peers are the published keys of peers; Until is when one leaves whose file is gone.
	peers   []jws.PublishedKey
	revoked []string // key IDs, sorted
}

// ending is when a key of RetiredFiles leaves.
type ending struct {
	KeyID string    `json:"keyID"`
	Until time.Time `json:"until"`
}

// The state in JSON.
type writtenState struct {
	Version int          `json:"version"`
	Issuer  string       `json:"issuer"`
	Own     []writtenKey `json:"own"`
	Retired []ending     `json:"retiredFiles"`
	Peers   []writtenKey `json:"peers"`
	Revoked []string     `json:"revokedKeyIDs"`
}

type writtenKey struct {
	KeyID     string    `json:"keyID"`
	Public    []byte    `json:"publicKey"` // PKIX
	SignsFrom time.Time `json:"signsFrom,omitzero"`
	Until     time.Time `json:"until,omitzero"`
}

// marshal returns the state file.
func (s *state) marshal() ([]byte, error) {
	w := writtenState{Version: stateVersion, Issuer: s.issuer, Retired: []ending{}, Revoked: append([]string{}, s.revoked...)}
	for _, e := range s.retired {
		w.Retired = append(w.Retired, ending{e.KeyID, e.Until.UTC()})
	}
	var err error
	if w.Own, err = writtenKeys(s.own); err != nil {
		return nil, err
	}
	if w.Peers, err = writtenKeys(s.peers); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(w, "", "  ")
	if text = append(text, '\n'); err == nil && len(text) > maxStateFile {
		err = checkState.Refuse(strconv.Itoa(len(text))+" bytes", "at most "+strconv.Itoa(maxStateFile))
	}
	return text, err
}

func writtenKeys(keys []jws.PublishedKey) ([]writtenKey, error) {
	written := []writtenKey{}
	for _, k := range keys {
		der, err := x509.MarshalPKIXPublicKey(k.Key.Public())
		if err != nil {
			return nil, err
		}
		written = append(written, writtenKey{k.Key.KeyID(), der, k.SignsFrom.UTC(), k.Until.UTC()})
	}
	return written, nil
}

// parseState reads a state file, which has the one encoding that marshal writes.
func parseState(text []byte) (*state, error) {
	var w writtenState
	if err := json.Unmarshal(text, &w); err != nil {
		return nil, &refusal.Error{Check: checkState, Got: "damaged JSON", Err: err}
	}
	switch {
	case w.Version != stateVersion:
		return nil, checkState.Refuse("version "+strconv.Itoa(w.Version), strconv.Itoa(stateVersion)+", which this program writes")
	case len(w.Own) > 2+maxRetired || len(w.Peers) > maxPeers || len(w.Revoked) > maxRevoked:
		return nil, checkState.Refuse("more keys or key IDs", "as many as this program writes")
	}
	s := &state{issuer: w.Issuer, retired: w.Retired, revoked: w.Revoked}
	var err error
	if s.own, err = readKeys(w.Own); err != nil {
		return nil, err
	}
	if s.peers, err = readKeys(w.Peers); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if again, err := s.marshal(); err != nil || !bytes.Equal(again, text) {
		return nil, &refusal.Error{Check: checkState, Got: "another encoding", Want: "the bytes that this program writes", Err: err}
	}
	return s, nil
}

// check checks the order and the times of the keys.
func (s *state) check() error {
	for i, k := range s.own {
		signs, next, old := i == 0, i == 1 && k.Until.IsZero(), i >= 1 && !k.Until.IsZero()
		if signs && (!k.SignsFrom.IsZero() || !k.Until.IsZero()) || next == k.SignsFrom.IsZero() && i > 0 || !signs && !next && !old {
			return checkState.Refuse("the key "+refusal.Quote(k.Key.KeyID())+" at position "+strconv.Itoa(i), "the key that signs, the next one, and those with an end")
		}
	}
	for _, k := range s.peers {
		if !k.SignsFrom.IsZero() {
			return checkState.Refuse("a key of a peer that signs", "keys of peers that verify")
		}
	}
	for _, keys := range [][]jws.PublishedKey{s.own, s.peers} {
		var ids []string
		for _, k := range keys {
			ids = append(ids, k.Key.KeyID())
		}
		if slices.Sort(ids); len(slices.Compact(slices.Clone(ids))) != len(ids) {
			return checkState.Refuse("a key ID twice", "once")
		}
	}
	if !slices.IsSorted(s.revoked) {
		return checkState.Refuse("unsorted revoked key IDs", "sorted ones")
	}
	return nil
}

func readKeys(written []writtenKey) ([]jws.PublishedKey, error) {
	var keys []jws.PublishedKey
	for _, w := range written {
		public, err := x509.ParsePKIXPublicKey(w.Public)
		if err != nil {
			return nil, &refusal.Error{Check: checkState, Got: "a malformed key " + refusal.Quote(w.KeyID), Err: err}
		}
		key, err := publicKey(public, w.KeyID)
		if err == nil && w.KeyID == "" {
			err = errors.New("no key ID")
		}
		if err != nil {
			return nil, &refusal.Error{Check: checkState, Got: "an unfit key " + refusal.Quote(w.KeyID), Err: err}
		}
		keys = append(keys, jws.PublishedKey{Key: key, SignsFrom: w.SignsFrom, Until: w.Until})
	}
	return keys, nil
}

// readState reads the state of an issuer, which is empty before the first start.
func readState(path, issuer string) (s *state, err error) {
	if err := safefile.CheckWay(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("the folder of stateFile: %w", err)
	}
	text, err := safefile.Read(path, maxStateFile, safefile.Private)
	if errors.Is(err, fs.ErrNotExist) {
		return &state{issuer: issuer}, nil
	}
	if err == nil {
		s, err = parseState(text)
	}
	if err == nil && s.issuer != issuer {
		err = checkState.Refuse("the state of issuer "+refusal.Quote(s.issuer), refusal.Quote(issuer))
	}
	if err != nil {
		return nil, fmt.Errorf("stateFile %s: %w; to begin without it, put the revoked key IDs into revokedKeyIDs and the earlier public keys into a file of retiredFiles, and move the state away",
			path, err)
	}
	return s, nil
}

// write replaces the state file: a reader finds the whole old state or the whole new one.
func (k *Keys) write(text []byte) error {
	path := k.config.StateFile
	k.step("before the state")
	err := safefile.Replace(path, func(f *os.File) error {
		k.step("an empty file")
		_, err := f.Write(text)
		k.step("a file that is not in its place")
		return err
	})
	if k.step("the state"); err != nil {
		return fmt.Errorf("stateFile %s: %w", path, err)
	}
	return nil
}
