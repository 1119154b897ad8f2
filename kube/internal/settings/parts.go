package settings

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/internal/files"
	"github.com/nodeattest/nodeattest/refusal"
)

// The limits of an inventory that is a folder. Each part has at most [MaxInventorySize].
const (
	maxParts     = 256
	maxPartsSize = 64 << 20
)

// A part is a file of an inventory, as it was last read. It is not changed once it is in a [Listed].
type part struct {
	name     string
	whole    bool              // it is the inventory, which is no folder
	sum      [sha256.Size]byte // of the text that was last read; zero: of no text
	size     int64
	machines []csr.Machine // as the last text said that could be parsed
	err      error         // why the text, or the last one, cannot be used
}

// A place is where the parts of an inventory are at a moment.
type place struct {
	folder string // in which the files are
	link   string // the target of the folder's ..data, in the volume of a ConfigMap
	names  []string
}

// dataLink is the link in the volume of a ConfigMap that leads to its present contents. The kubelet replaces it in
// one step (pkg/volume/util/atomic_writer.go of Kubernetes).
const dataLink = "..data"

// findParts lists the parts of the inventory at a path: that file, or the files in that folder, in the order of
// their names. Hidden files are no parts. Any other file is one, so that a part of another name is refused.
func findParts(path string) (place, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return place{folder: filepath.Dir(path), names: []string{filepath.Base(path)}}, err
	}
	at := place{folder: path}
	if link, err := os.Readlink(filepath.Join(path, dataLink)); err == nil {
		at.link, at.folder = link, filepath.Join(path, dataLink)
		if !filepath.IsAbs(link) { // so that the files are of one version, even if the link is replaced meanwhile
			at.folder = filepath.Join(path, link)
		}
	}
	folder, err := os.Open(at.folder)
	if err != nil {
		return at, err
	}
	defer folder.Close()
	names, err := folder.Readdirnames(2 * maxParts)
	if err != nil && !errors.Is(err, io.EOF) {
		return at, err
	}
	many := len(names) == 2*maxParts
	at.names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, ".") })
	slices.Sort(at.names)
	switch {
	case many || len(at.names) > maxParts:
		return at, refusal.Config("inventory "+path, fmt.Sprintf("a folder of %d files or more", len(names)), fmt.Sprintf("at most %d parts", maxParts))
	case len(at.names) == 0:
		return at, refusal.Config("inventory "+path, "a folder without files", "a part; machines: [] in it says that there are no machines")
	}
	return at, nil
}

// readParts reads the parts of the inventory. Parts of before whose files have not changed are taken over. If the
// folder is replaced meanwhile, all are read anew.
func (s *Settings) readParts(before []*part) ([]*part, error) {
	known := make(map[string]*part, len(before))
	for _, p := range before {
		known[p.name] = p
	}
	const tries = 3
	for range tries {
		at, err := findParts(s.Inventory.File)
		if err != nil {
			return nil, err
		}
		parts, left := make([]*part, len(at.names)), int64(maxPartsSize)
		for i, name := range at.names {
			parts[i] = s.readPart(at, name, left, known[name])
			left -= parts[i].size
		}
		if link, _ := os.Readlink(filepath.Join(s.Inventory.File, dataLink)); link == at.link {
			return parts, nil
		}
	}
	return nil, fmt.Errorf("%s was replaced %d times while it was read", s.Inventory.File, tries)
}

// readPart reads a part of at most left bytes. before is the part as it was last read, or nil: readPart returns it if
// nothing has changed, and a part that cannot be read keeps its machines.
func (s *Settings) readPart(at place, name string, left int64, before *part) *part {
	if before == nil {
		before = new(part)
	}
	path := filepath.Join(at.folder, name)
	p := &part{name: name, whole: path == filepath.Clean(s.Inventory.File), machines: before.machines}
	text, sum, err := []byte(nil), before.sum, checkPart(p)
	if err == nil {
		text, sum, err = files.ReadChanged(path, min(MaxInventorySize, left), before.sum)
	}
	switch {
	case err != nil:
		if p.err = err; left < MaxInventorySize {
			p.err = fmt.Errorf("%w, and all parts together %d", err, maxPartsSize)
		}
		if before.err != nil && before.err.Error() == p.err.Error() {
			return before
		}
	case sum == before.sum:
		return before
	default:
		p.sum, p.size = sum, int64(len(text))
		var machines []csr.Machine
		if machines, p.err = s.parse(text); p.err == nil {
			p.machines = machines
		}
	}
	return p
}

// checkPart refuses a file of another name in the folder: were it left out, no error would say that its machines are.
func checkPart(p *part) error {
	if ext := filepath.Ext(p.name); !p.whole && ext != ".yaml" && ext != ".json" {
		return refusal.Config("a file in the inventory's folder", refusal.Quote(p.name), "a name that ends with .yaml or .json, or begins with a dot for a file that is no part")
	}
	return nil
}
