package keys

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkPeers: the folder of peers has too many files or keys, or a file that is not one of public keys.
const checkPeers refusal.Check = "peers-folder"

// folder is the folder of peers as it was last read.
type folder struct {
	path  string
	files map[string][]*jws.Key // the last content of each file that could be read
	seen  bool                  // the folder could be read since the start
}

// read reads the folder again. A folder that cannot be read keeps all of its content, and a file its own:
// report gets that error for its path. A file that is gone has no content.
func (f *folder) read(report func(path string, err error)) {
	names, err := f.list()
	if err != nil {
		report(f.path, err)
		return
	}
	dir, err := os.OpenRoot(f.path)
	if err != nil {
		report(f.path, err)
		return
	}
	defer dir.Close()
	f.seen = true
	maps.DeleteFunc(f.files, func(name string, _ []*jws.Key) bool { return !slices.Contains(names, name) })
	for _, name := range names {
		keys, err := readPeers(dir, name)
		if had := f.count(); err == nil && had-len(f.files[name])+len(keys) > maxPeers {
			err = checkPeers.Refuse("more keys in the folder", "at most "+strconv.Itoa(maxPeers)+" keys of peers")
		}
		if err == nil {
			f.files[name] = keys
		}
		report(filepath.Join(f.path, name), err)
	}
}

func (f *folder) count() (n int) {
	for _, keys := range f.files {
		n += len(keys)
	}
	return n
}

// list returns the names of the folder's files, sorted.
func (f *folder) list() ([]string, error) {
	if err := safefile.CheckWay(f.path); err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	dir, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	all, err := dir.Readdirnames(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	names := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return strings.HasPrefix(name, ".") })
	if len(all) > maxEntries || len(names) > maxPeerFiles {
		return nil, fmt.Errorf("%s: %w", f.path, checkPeers.Refuse("more files", "at most "+strconv.Itoa(maxPeerFiles)))
	}
	slices.Sort(names)
	return names, nil
}

// readPeers reads one file of the folder.
func readPeers(dir *os.Root, name string) ([]*jws.Key, error) {
	extension := filepath.Ext(name)
	if extension != ".pem" && extension != ".json" {
		return nil, checkPeers.Refuse("the name "+refusal.Quote(name), "NAME.pem or NAME.json")
	}
	text, err := safefile.ReadIn(dir, name, maxPublicFile, safefile.Trusted)
	if err != nil {
		return nil, err
	}
	if extension == ".pem" {
		return parsePublic(text, maxPeers)
	}
	return parseSet(text)
}

// parseSet reads a JWK set.
func parseSet(text []byte) ([]*jws.Key, error) {
	keys, err := jws.ParseJWKS(bytes.TrimSpace(text))
	if err == nil && len(keys) == 0 {
		err = errors.New("no key")
	}
	for _, key := range keys {
		err = errors.Join(err, checkAlgorithm(key))
	}
	if err != nil {
		return nil, &refusal.Error{Check: checkPublicFile, Err: err}
	}
	return distinct(keys)
}

// keys returns the keys of all files, each once, in the order of the files' names. Of two keys with one ID
// the first counts, and report gets an error for the other.
func (f *folder) keys(report func(path string, err error)) (keys []*jws.Key) {
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		for _, key := range f.files[name] {
			switch other := find(keys, key.KeyID()); {
			case other == nil:
				keys = append(keys, key)
			case !same(other, key):
				report(filepath.Join(f.path, name)+" "+key.KeyID(), checkPeers.Refuse("another key with the ID "+refusal.Quote(key.KeyID()), "one key for each ID"))
			}
		}
	}
	return keys
}

// readPublicFiles reads the files of a list of the configuration.
func readPublicFiles(paths []string, most int) ([]*jws.Key, error) {
	var keys []*jws.Key
	for _, path := range paths {
		text, err := readPublic(path, maxPublicFile)
		var more []*jws.Key
		if err == nil {
			more, err = parsePublic(text, most)
		}
		if err == nil {
			keys, err = distinct(append(keys, more...))
		}
		if err == nil && len(keys) > most {
			err = checkPublicFile.Refuse("more keys", "at most "+strconv.Itoa(most)+" in all files of a list")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return keys, nil
}
