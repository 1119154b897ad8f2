//go:build unix

package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func create(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := Create(path, Content([]byte("x"))); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestModes(t *testing.T) {
	for _, tt := range []struct {
		mode     fs.FileMode
		accesses []Access // that take it
	}{
		{0o600, []Access{Private, Trusted}},
		{0o640, []Access{Trusted}},
		{0o604, []Access{Trusted}},
		{0o644, []Access{Trusted}},
		{0o400, []Access{Trusted}},
		{0o700, []Access{Trusted}},
		{0o601, []Access{Trusted}},
		{0o600 | fs.ModeSticky, []Access{Trusted}},
		{0o600 | fs.ModeSetuid, []Access{Trusted}},
		{0o600 | fs.ModeSetgid, []Access{Trusted}},
		{0o620, nil},
		{0o602, nil},
		{0o660, nil},
		{0o666, nil},
		{0o777, nil},
	} {
		t.Run(tt.mode.String(), func(t *testing.T) {
			path := create(t)
			if err := os.Chmod(path, tt.mode); err != nil {
				t.Fatal(err)
			}
			for _, access := range []Access{Private, Trusted} {
				taken := false
				for _, a := range tt.accesses {
					taken = taken || a == access
				}
				want := map[Access]string{Private: "want 0600", Trusted: "others cannot write"}[access]
				_, err := Read(path, 10, access)
				if taken && err != nil || !taken && (!errors.Is(err, CheckFile) || !strings.Contains(err.Error(), want)) {
					t.Errorf("access %d: got %v, taken should be %t", access, err, taken)
				}
			}
		})
	}
}

func TestOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a file away")
	}
	path := create(t)
	dir := filepath.Dir(path)
	for _, p := range []string{path, dir} {
		if err := os.Chown(p, 65534, -1); err != nil {
			t.Fatal(err)
		}
	}
	for _, access := range []Access{Private, Trusted} {
		if _, err := Read(path, 10, access); !errors.Is(err, CheckFile) || !strings.Contains(err.Error(), "65534") {
			t.Errorf("access %d: got %v, want %v with the owner", access, err, CheckFile)
		}
	}
	if err := CheckDirectory(dir); !errors.Is(err, CheckFile) || !strings.Contains(err.Error(), "65534") {
		t.Errorf("directory: got %v, want %v with the owner", err, CheckFile)
	}
}

// owned is the FileInfo of a file of some user.
type owned struct {
	fs.FileInfo
	stat any
}

func (o owned) Sys() any { return o.stat }

// Who may own what, also where the test's user cannot give a file away.
func TestOwnerRules(t *testing.T) {
	me := uint32(os.Geteuid())
	for name, tt := range map[string]struct {
		stat    any
		rootToo bool
		taken   bool
	}{
		"ours":                  {&syscall.Stat_t{Uid: me}, false, true},
		"ours, or root's":       {&syscall.Stat_t{Uid: me}, true, true},
		"root's, ours alone":    {&syscall.Stat_t{Uid: 0}, false, me == 0},
		"root's":                {&syscall.Stat_t{Uid: 0}, true, true},
		"another's":             {&syscall.Stat_t{Uid: me + 1}, false, false},
		"another's, root's too": {&syscall.Stat_t{Uid: me + 1}, true, false},
		"not known":             {nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := checkOwner(owned{stat: tt.stat}, tt.rootToo); (err == nil) != tt.taken || err != nil && !errors.Is(err, CheckFile) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestNoRegularFile(t *testing.T) {
	file := create(t)
	dir := filepath.Dir(file)
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, fifo, dir} {
		for _, access := range []Access{Private, Trusted} {
			if _, err := Read(path, 10, access); !errors.Is(err, CheckFile) {
				t.Errorf("%s: got %v, want %v", filepath.Base(path), err, CheckFile)
			}
		}
	}
	if _, err := Read(link, 10, Private); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a link: got %v, want %v as its cause", err, syscall.ELOOP)
	}
	if err := Sync(link); !errors.Is(err, CheckFile) {
		t.Errorf("a symbolic link was opened for writing: %v", err)
	}
	if err := Sync(fifo); !errors.Is(err, CheckFile) {
		t.Errorf("a FIFO was opened for writing: %v", err)
	}
}

func TestCheckDirectory(t *testing.T) {
	dir := t.TempDir()
	for mode, taken := range map[fs.FileMode]bool{0o700: true, 0o755: true, 0o770: false, 0o702: false, 0o777 | fs.ModeSticky: false} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if err := CheckDirectory(dir); (err == nil) != taken || err != nil && !errors.Is(err, CheckFile) {
			t.Errorf("%v: got %v", mode, err)
		}
	}
	if err := CheckDirectory(filepath.Join(dir, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
}

// TestCheckWay: who could replace a directory by another.
func TestCheckWay(t *testing.T) {
	for name, c := range map[string]struct {
		mode    fs.FileMode // of the directory above
		owner   int
		through string // a symbolic link that leads there, in such a directory
		refused bool
	}{
		"no other user":                        {mode: 0o755},
		"everybody":                            {mode: 0o777, refused: true},
		"a group":                              {mode: 0o775, refused: true},
		"everybody, each what is theirs":       {mode: 0o777 | fs.ModeSticky},
		"its owner":                            {mode: 0o755, owner: 65534, refused: true},
		"no other user, through a link":        {mode: 0o755, through: "private"},
		"everybody, through a link":            {mode: 0o777, through: "private", refused: true},
		"no other user, through a shared one":  {mode: 0o755, through: "shared", refused: true},
		"no other user, through a foreign one": {mode: 0o755, through: "foreign", refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			if (c.owner != 0 || c.through == "foreign") && os.Geteuid() != 0 {
				t.Skip("needs root, to give a directory away")
			}
			top := t.TempDir()
			above := filepath.Join(top, "above")
			dir := filepath.Join(above, "dir")
			if err := errors.Join(os.MkdirAll(dir, 0o700), os.Chmod(above, c.mode), os.Chown(above, c.owner, -1)); err != nil && c.owner != 0 {
				t.Fatal(err)
			}
			if c.through != "" {
				links := filepath.Join(top, c.through)
				way := filepath.Join(links, "link")
				if err := errors.Join(os.Mkdir(links, 0o700), os.Symlink(above, way)); err != nil {
					t.Fatal(err)
				}
				switch c.through {
				case "shared":
					if err := os.Chmod(links, 0o777); err != nil {
						t.Fatal(err)
					}
				case "foreign":
					if err := os.Lchown(way, 65534, -1); err != nil {
						t.Fatal(err)
					}
				}
				dir = filepath.Join(way, "dir")
			}
			if err := CheckWay(dir); (err != nil) != c.refused || err != nil && !errors.Is(err, CheckFile) {
				t.Errorf("got %v, refused should be %t", err, c.refused)
			}
		})
	}
	if err := CheckWay(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: got %v", err)
	}
}
