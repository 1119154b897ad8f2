package certstore

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

var now = time.Now().UTC().Truncate(time.Second)

func later(received time.Time, leaf *x509.Certificate) time.Time {
	return received.Add(leaf.NotAfter.Sub(received) / 2)
}

// certificate makes a certificate, good for an hour, and its key.
func certificate(t testing.TB, name string) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(time.Hour)}
	der := testkit.Must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	return pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: der}), key
}

func pair(t testing.TB, name string) *Pair {
	t.Helper()
	chain, key := certificate(t, name)
	p := testkit.Must(NewPair(chain, key, now, later))
	return p
}

func open(t testing.TB) *Store {
	t.Helper()
	s := testkit.Must(Open(filepath.Join(t.TempDir(), "store")))
	return s
}

func lock(t testing.TB, s *Store) *Lock {
	t.Helper()
	l := testkit.Must(s.Lock(t.Context()))
	return l
}

func TestPair(t *testing.T) {
	p := pair(t, "node")
	s := open(t)
	if _, err := s.ReadPair("client.pem"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing there: got %v", err)
	}
	l := lock(t, s)
	testkit.MustDo(l.WritePair("client.pem", p))
	got, err := s.ReadPair("client.pem")
	if err != nil || !bytes.Equal(got.Marshal(), p.Marshal()) || !got.Received.Equal(now) || !got.Renew.Equal(now.Add(30*time.Minute)) {
		t.Errorf("got %+v, %v", got, err)
	}
	if !got.Usable(now.Add(59*time.Minute)) || got.Usable(now.Add(time.Hour-time.Second)) || (*Pair)(nil).Usable(now) || new(Pair).Usable(now) || (*Pair)(nil).CheckKey(nil) == nil || new(Pair).CheckKey(nil) == nil {
		t.Error("Usable")
	}
	// The kubelet reads tlsCertFile and tlsPrivateKeyFile in this way.
	if _, err := tls.LoadX509KeyPair(s.Path("client.pem"), s.Path("client.pem")); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"client.pem", ".lock"} {
		if info, err := os.Stat(s.Path(name)); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if err := l.Remove("client.pem"); err != nil {
		t.Error(err)
	}
	if err := l.WritePair("client.pem", new(Pair)); !errors.Is(err, CheckPair) {
		t.Errorf("wrote no pair: %v", err)
	}
	if err := errors.Join(l.Remove("client.pem"), l.Unlock(), l.Unlock()); err != nil {
		t.Error(err)
	}
	if l.WritePair("client.pem", p) == nil || l.Remove("client.pem") == nil {
		t.Error("written without the lock")
	}
}

func TestSealedPair(t *testing.T) {
	chain, key := certificate(t, "node")
	file := pem.EncodeToMemory(&pem.Block{Type: "TSS2 PRIVATE KEY", Bytes: []byte("sealed")})
	p, err := NewSealedPair(chain, file, key.Public(), now, later)
	if err != nil || !p.Sealed || !bytes.Equal(p.Key, file) {
		t.Fatalf("got %+v, %v", p, err)
	}
	_, other := certificate(t, "other")
	for name, err := range map[string]error{
		"another key":     second(NewSealedPair(chain, file, other.Public(), now, later)),
		"the key itself":  second(NewSealedPair(chain, pair(t, "x").Key, key.Public(), now, later)),
		"loaded, another": p.CheckKey(other.Public()),
		"loaded, none":    p.CheckKey(nil),
	} {
		t.Run(name, func(t *testing.T) {
			if !errors.Is(err, CheckPair) {
				t.Errorf("%s: got %v, want %v", name, err, CheckPair)
			}
		})
	}
}

func second(_ *Pair, err error) error { return err }

// TestParsePairRefuses has each smallest change of a good file refused.
func TestParsePairRefuses(t *testing.T) {
	good := string(pair(t, "node").Marshal())
	other := pair(t, "node")
	key := good[strings.Index(good, "-----BEGIN PRIVATE"):]
	many := strings.Repeat(string(other.Chain), maxChain+1)
	renew := "renew " + now.Add(30*time.Minute).Format(timeForm)
	for name, text := range map[string]string{
		"empty":               "",
		"no first line":       good[strings.Index(good, "\n")+1:],
		"another first line":  strings.Replace(good, "# received", "# Received", 1),
		"no time":             strings.Replace(good, renew, "renew soon", 1),
		"renewal before":      strings.Replace(good, renew, "renew "+now.Add(-time.Second).Format(timeForm), 1),
		"renewal after":       strings.Replace(good, renew, "renew "+now.Add(time.Hour+time.Second).Format(timeForm), 1),
		"no key":              strings.TrimSuffix(good, key),
		"no certificate":      good[:strings.Index(good, "\n")+1] + key,
		"another key":         strings.Replace(good, key, string(other.Key), 1),
		"two keys":            good + key,
		"something after":     good + "x",
		"something between":   strings.Replace(good, "-----BEGIN PRIVATE", "x\n-----BEGIN PRIVATE", 1),
		"a header":            strings.Replace(good, "-----BEGIN PRIVATE KEY-----\n", "-----BEGIN PRIVATE KEY-----\na: b\n\n", 1),
		"cut":                 good[:len(good)-1],
		"too many":            good[:strings.Index(good, "\n")+1] + many + key,
		"too large":           good + strings.Repeat(" ", maxPairSize),
		"a broken one":        strings.Replace(good, "-----BEGIN CERTIFICATE-----\n", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\n", 1),
		"Windows' line ends":  strings.ReplaceAll(good, "\n", "\r\n"),
		"a certificate twice": good + string(other.Chain),
	} {
		t.Run(name, func(t *testing.T) {
			if p, err := parsePair([]byte(text)); !errors.Is(err, CheckPair) || p != nil {
				t.Errorf("got %+v, %v, want %v", p, err, CheckPair)
			}
		})
	}
	chain, k := certificate(t, "node")
	for name, err := range map[string]error{
		"no certificate": second(NewPair(nil, k, now, later)),
		"a key":          second(NewPair(append(other.Key, chain...), k, now, later)),
		"garbage":        second(NewPair(pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: []byte("x")}), k, now, later)),
		"other":          second(NewPair(other.Chain, k, now, later)),
		"no key":         second(NewPair(chain, unmarshalable{}, now, later)),
		"ended":          second(NewPair(chain, k, now.Add(time.Hour), later)),
	} {
		t.Run(name, func(t *testing.T) {
			if !errors.Is(err, CheckPair) {
				t.Errorf("%s: got %v, want %v", name, err, CheckPair)
			}
		})
	}
}

type unmarshalable struct{ crypto.Signer }

func FuzzParsePair(f *testing.F) {
	p := pair(f, "node")
	f.Add(p.Marshal())
	f.Add([]byte("# received 2026-01-02T15:04:05Z, renew 2026-01-02T15:04:05Z\n"))
	sealed := *p
	sealed.Key = pem.EncodeToMemory(&pem.Block{Type: "TSS2 PRIVATE KEY", Bytes: []byte("x")})
	f.Add(sealed.Marshal())
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := parsePair(text)
		if (p == nil) == (err == nil) || err != nil && !errors.Is(err, CheckPair) {
			t.Fatalf("got %+v, %v", p, err)
		}
		if err == nil && !bytes.Equal(p.Marshal(), text) {
			t.Error("another text")
		}
	})
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(""); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no name: got %v", err)
	}
	if _, err := Open(filepath.Join(dir, "absent", "store")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder above: got %v", err)
	}
	open := filepath.Join(dir, "open")
	testkit.MustDo(errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)))
	if _, err := Open(open); !errors.Is(err, checkFile) {
		t.Errorf("a folder for everybody: got %v", err)
	}
	if runtime.GOOS != "windows" {
		if _, err := Open(filepath.Join(open, "store")); !errors.Is(err, checkFile) {
			t.Errorf("a folder in one for everybody: got %v", err)
		}
	}
	s := testkit.Must(Open(filepath.Join(dir, "store")))
	testkit.MustDo(os.WriteFile(s.Path("client.pem"), pair(t, "node").Marshal(), 0o644))
	if _, err := s.ReadPair("client.pem"); !errors.Is(err, checkFile) {
		t.Errorf("a file for everybody: got %v", err)
	}
}

func TestLock(t *testing.T) {
	s := open(t)
	l := lock(t, s)
	if _, err := s.TryLock(); !errors.Is(err, ErrLocked) {
		t.Errorf("TryLock: got %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Lock(ctx); !errors.Is(err, ErrLocked) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lock: got %v", err)
	}
	runtime.GC() // a collected file would give its lock back
	runtime.GC()
	if _, err := s.TryLock(); !errors.Is(err, ErrLocked) {
		t.Errorf("after a collection: got %v", err)
	}
	// Who removes the file does not get a second lock for long.
	waiting := make(chan *Lock)
	go func() {
		second, err := s.Lock(t.Context())
		if err != nil {
			t.Error(err)
		}
		waiting <- second
	}()
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
	if err := (<-waiting).Unlock(); err != nil {
		t.Error(err)
	}
}

// TestHold: a held name shows until its release, or for a minute after the last sign of life, and
// readers do not disturb a process that takes it.
func TestHold(t *testing.T) {
	s := open(t)
	if s.Held("daemon") {
		t.Error("held before Hold")
	}
	beat, release, err := s.Hold("daemon")
	if err != nil || !s.Held("daemon") || s.Held("other") {
		t.Fatalf("not held: %v", err)
	}
	if _, _, err := s.Hold("daemon"); !errors.Is(err, ErrLocked) {
		t.Errorf("held twice: got %v", err)
	}
	for _, away := range []time.Duration{-heldFor, 2 * heldFor, 30 * 24 * time.Hour} { // and clocks that were set
		at := time.Now().Add(away)
		if err := os.Chtimes(s.Path("daemon"+heldSuffix), at, at); err != nil || s.Held("daemon") {
			t.Errorf("a sign of life %s from now counts, %v", away, err)
		}
	}
	if _, _, err := s.Hold("daemon"); !errors.Is(err, ErrLocked) {
		t.Errorf("held by two, where the first is silent: got %v", err)
	}
	if err := beat(); err != nil || !s.Held("daemon") {
		t.Errorf("not held after another sign of life: %v", err)
	}
	if err := release(); err != nil || s.Held("daemon") {
		t.Errorf("held after its release: %v", err)
	}
	var all sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = s.Held("daemon")
				}
			}
		})
	}
	failed := 0
	for range 500 {
		_, release, err := s.Hold("daemon")
		if err != nil {
			failed++
			continue
		}
		if err := release(); err != nil {
			t.Error(err)
		}
	}
	close(done)
	all.Wait()
	if failed != 0 {
		t.Errorf("%d of 500 were told that another one holds the name", failed)
	}
}

// TestRemovedFolder: once the folder is gone nothing is read or written, not even if another
// one has its name.
func TestRemovedFolder(t *testing.T) {
	for name, instead := range map[string]func(dir string) error{
		"nothing":        func(string) error { return nil },
		"another folder": func(dir string) error { return os.Mkdir(dir, 0o700) },
		"a link":         func(dir string) error { return os.Symlink(t.TempDir(), dir) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			beat, release, err := s.Hold("daemon")
			testkit.MustDo(errors.Join(err, os.RemoveAll(s.dir), instead(s.dir)))
			_, locked := s.TryLock()
			_, read := s.ReadPair("client.pem")
			for what, err := range map[string]error{"TryLock": locked, "ReadPair": read, "beat": beat(), "release": release()} {
				if !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: got %v", what, err)
				}
			}
			if s.Held("daemon") {
				t.Error("still held")
			}
			if entries, _ := os.ReadDir(s.dir); len(entries) != 0 {
				t.Errorf("written into what has its name: %v", entries)
			}
			if again, err := Open(s.dir); err != nil {
				t.Error(err)
			} else if err := lock(t, again).WritePair("client.pem", pair(t, "node")); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLockOfTwo writes to a folder under the lock of another.
func TestLockOfTwo(t *testing.T) {
	s, keys := open(t), open(t)
	l := lock(t, s)
	in := l.In(keys)
	testkit.MustDo(in.WritePair("client.pem", pair(t, "node")))
	if _, err := keys.ReadPair("client.pem"); err != nil {
		t.Error(err)
	}
	if _, err := s.ReadPair("client.pem"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is in the other: %v", err)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
	if in.Write("x", nil) == nil || l.In(nil).Write("x", nil) == nil || (*Lock)(nil).In(keys).Write("x", nil) == nil {
		t.Error("written without the lock")
	}
}

// TestTurns counts under the lock from many goroutines.
func TestTurns(t *testing.T) {
	s := open(t)
	const writers, writes = 4, 10
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range writes {
				l, err := s.Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				n := 0
				if text, err := s.Read("count", 100); err == nil {
					_, _ = fmt.Sscan(string(text), &n)
				}
				if err := errors.Join(l.Write("count", fmt.Append(nil, n+1)), l.Unlock()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if text, err := s.Read("count", 100); err != nil || string(text) != fmt.Sprint(writers*writes) {
		t.Errorf("counted %s, %v, want %d", text, err, writers*writes)
	}
}

const asChild = "CERTSTORE_TEST"

// TestMain is a program of another process where a test starts it.
func TestMain(m *testing.M) {
	switch dir := os.Getenv("CERTSTORE_DIR"); os.Getenv(asChild) {
	case "write":
		writeForever(dir)
	default:
		os.Exit(m.Run())
	}
}

// child starts a program of TestMain.
func child(t *testing.T, program, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asChild+"="+program, "CERTSTORE_DIR="+dir)
	return cmd
}

// writeForever replaces a pair by others until it is killed.
func writeForever(dir string) {
	s, err := Open(dir)
	if err != nil {
		panic(err)
	}
	t := new(testing.T)
	pairs := []*Pair{pair(t, "one"), pair(t, "two")}
	for n := 0; ; n++ {
		l, err := s.Lock(context.Background())
		if err != nil {
			panic(err)
		}
		if err := l.WritePair("client.pem", pairs[n%2]); err != nil {
			panic(err)
		}
		if n == 0 {
			fmt.Println("writing")
		}
		if err := l.Unlock(); err != nil {
			panic(err)
		}
	}
}

// TestKill kills a writer at random points: the stored pair is whole, the lock is free, and
// nothing is left over by the next write.
func TestKill(t *testing.T) {
	s := open(t)
	p := pair(t, "last")
	for n := range 25 {
		cmd := child(t, "write", s.dir)
		out := testkit.Must(cmd.StdoutPipe())
		testkit.MustDo(cmd.Start())
		testkit.Must(out.Read(make([]byte, 8)))
		time.Sleep(time.Duration(n) * 377 * time.Microsecond)
		testkit.MustDo(cmd.Process.Kill())
		_ = cmd.Wait()
		got, err := s.ReadPair("client.pem")
		if err != nil || got.Leaf.Subject.CommonName != "one" && got.Leaf.Subject.CommonName != "two" {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	l := lock(t, s)
	testkit.MustDo(errors.Join(l.WritePair("client.pem", p), l.Unlock()))
	entries := testkit.Must(os.ReadDir(s.dir))
	for _, e := range entries {
		if e.Name() != "client.pem" && e.Name() != ".lock" {
			t.Errorf("%s is left over", e.Name())
		}
	}
}
