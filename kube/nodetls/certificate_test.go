package nodetls

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
)

// TestOpenRefuses changes a good file, or the way to it, in the smallest way: each error has its check and
// says what to do.
func TestOpenRefuses(t *testing.T) {
	serving := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, f *folder) (path string)
		is     error
		says   string
	}{
		{"no file", func(_ *testing.T, f *folder) string { return filepath.Join(f.dir, "other.pem") }, fs.ErrNotExist, "name client.pem in keyDir"},
		{"no folder", func(_ *testing.T, f *folder) string { return filepath.Join(f.dir, "absent", "client.pem") }, fs.ErrNotExist, "name client.pem in keyDir"},
		{"no name", func(*testing.T, *folder) string { return "" }, fs.ErrNotExist, "name client.pem in keyDir"},
		{"the folder", func(_ *testing.T, f *folder) string { return f.dir }, safefile.CheckFile, "a regular file"},
		{"a file that others read", func(_ *testing.T, f *folder) string {
			testkit.MustDo(os.Chmod(f.path(), 0o640))
			return f.path()
		}, safefile.CheckFile, "run this program as the user of kubelet-authenticator"},
		{"a folder that others write to", func(_ *testing.T, f *folder) string {
			testkit.MustDo(os.Chmod(f.dir, 0o777))
			return f.path()
		}, safefile.CheckFile, "no other user can write to"},
		{"a symbolic link", func(t *testing.T, f *folder) string {
			to := filepath.Join(t.TempDir(), "link.pem")
			testkit.MustDo(os.Symlink(f.path(), to))
			return to
		}, safefile.CheckFile, "a symbolic link"},
		{"half of the file", func(t *testing.T, f *folder) string {
			text := testkit.Must(os.ReadFile(f.path()))
			f.write(t, text[:len(text)/2])
			return f.path()
		}, certstore.CheckPair, "only kubelet-authenticator writes the file"},
		{"a file of the kubelet's own", func(t *testing.T, f *folder) string {
			text := testkit.Must(os.ReadFile(f.path()))
			f.write(t, text[bytes.IndexByte(text, '\n')+1:])
			return f.path()
		}, certstore.CheckPair, "only kubelet-authenticator writes the file"},
		{"another key", func(t *testing.T, f *folder) string {
			p := *f.pair(t, nil)
			p.Key = f.pair(t, nil).Key
			f.write(t, p.Marshal())
			return f.path()
		}, certstore.CheckPair, "a key that is not the certificate's"},
		{"a key in the TPM", func(t *testing.T, f *folder) string {
			p := *f.pair(t, nil)
			p.Key = pem.EncodeToMemory(&pem.Block{Type: "TSS2 PRIVATE KEY", Bytes: []byte("sealed")})
			f.write(t, p.Marshal())
			return f.path()
		}, certstore.CheckPair, "client.pem, whose key is in the file"},
		{"the serving certificate", func(t *testing.T, f *folder) string {
			f.install(t, f.pair(t, serving))
			return f.path()
		}, certstore.CheckPair, "serving.pem is for the kubelet's server"},
		{"another usage as well", func(t *testing.T, f *folder) string {
			f.install(t, f.pair(t, func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth) }))
			return f.path()
		}, certstore.CheckPair, "not for a TLS client"},
		{"an account's name", func(t *testing.T, f *folder) string {
			f.install(t, f.pair(t, func(c *x509.Certificate) { c.Subject.CommonName = "node-1" }))
			return f.path()
		}, certstore.CheckPair, "CN=system:node:<name>"},
		{"another organization", func(t *testing.T, f *folder) string {
			f.install(t, f.pair(t, func(c *x509.Certificate) { c.Subject.Organization = []string{"system:masters"} }))
			return f.path()
		}, certstore.CheckPair, "O=system:nodes"},
		{"one that has ended", func(t *testing.T, f *folder) string {
			f.install(t, f.pair(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) }))
			return f.path()
		}, certstore.CheckPair, "`kubelet-authenticator status`"},
		{"too large", func(t *testing.T, f *folder) string {
			f.write(t, slices.Concat(testkit.Must(os.ReadFile(f.path())), make([]byte, 256<<10)))
			return f.path()
		}, safefile.CheckFile, "at most 262144 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFolder(t)
			f.install(t, f.pair(t, nil))
			testkit.Must(Open(f.path(), Options{}))
			c, err := Open(tt.change(t, f), Options{})
			if c != nil || !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("got %v, want %v with %q", err, tt.is, tt.says)
			}
			if _, err := os.Stat(filepath.Join(f.dir, "absent")); err == nil {
				t.Error("a folder was made")
			}
		})
	}
}

// TestUnfitFile: a file that cannot be used is logged once, and the certificate of before is used until
// its end; a good one is used at the next handshake.
func TestUnfitFile(t *testing.T) {
	f, log, now := newFolder(t), new(logged), time.Now()
	first := f.install(t, f.pair(t, nil))
	c := testkit.Must(Open(f.path(), Options{Log: log.log(), Now: func() time.Time { return now }}))
	uses := func(want *x509.Certificate) {
		t.Helper()
		if got, err := c.TLSConfig().GetClientCertificate(nil); err != nil || !got.Leaf.Equal(want) {
			t.Errorf("got %v, %v, want %d", got, err, want.SerialNumber)
		}
	}
	next := f.pair(t, func(c *x509.Certificate) { c.NotAfter = now.Add(3 * time.Hour) })
	good := next.Marshal()
	for name, text := range map[string][]byte{"empty": nil, "half": good[:len(good)/2], "no key": good[:bytes.Index(good, []byte("-----BEGIN PRIVATE"))]} {
		f.write(t, text)
		uses(first.Leaf)
		uses(first.Leaf)
		const says = "the file of the node's certificate cannot be used; the previous certificate stays in use"
		if got := log.take(); strings.Count(got, says) != 1 || !strings.Contains(got, f.path()) || strings.Contains(got, "PRIVATE KEY") {
			t.Errorf("%s: logged %q", name, got)
		}
	}
	testkit.MustDo(os.Remove(f.path()))
	uses(first.Leaf)
	if got := log.take(); !strings.Contains(got, "no such file") {
		t.Errorf("logged %q", got)
	}

	now = now.Add(time.Hour) // the end of the first
	if got, err := c.TLSConfig().GetClientCertificate(nil); got != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after its end: %v, %v", got, err)
	}
	f.install(t, next)
	uses(next.Leaf)
	if got := log.take(); strings.Count(got, "renewed") != 1 {
		t.Errorf("logged %q", got)
	}
	now = now.Add(2 * time.Hour) // the end of the next, whose file is as it was
	if got, err := c.TLSConfig().GetClientCertificate(nil); got != nil || !errors.Is(err, certstore.CheckPair) {
		t.Errorf("after its end: %v, %v", got, err)
	}
}

// TestReadAgain: the file is read only when it has changed.
func TestReadAgain(t *testing.T) {
	f := newFolder(t)
	f.install(t, f.pair(t, nil))
	c := testkit.Must(Open(f.path(), Options{}))
	first := testkit.Must(c.current())
	if again := testkit.Must(c.current()); again != first {
		t.Error("an unchanged file was read again")
	}
	info := testkit.Must(os.Stat(f.path()))
	renewed := f.install(t, f.pair(t, nil))
	testkit.MustDo(os.Chtimes(f.path(), info.ModTime(), info.ModTime()))
	if again := testkit.Must(c.current()); !again.Leaf.Equal(renewed.Leaf) {
		t.Error("a file of the same time was not read")
	}
}

// TestTLSConfig: the configuration has version 1.2 at least and no tickets, whatever the base has.
func TestTLSConfig(t *testing.T) {
	f := newFolder(t)
	f.install(t, f.pair(t, nil))
	c := testkit.Must(Open(f.path(), Options{}))
	weak := &tls.Config{MinVersion: tls.VersionTLS10, ClientSessionCache: tls.NewLRUClientSessionCache(1), Certificates: make([]tls.Certificate, 1)}
	for name, got := range map[string]*tls.Config{"new": c.TLSConfig(), "weak": c.configure(weak)} {
		if got.MinVersion != tls.VersionTLS12 || got.ClientSessionCache != nil || got.Certificates != nil || got.InsecureSkipVerify {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := c.configure(&tls.Config{MinVersion: tls.VersionTLS13}); got.MinVersion != tls.VersionTLS13 {
		t.Error("a higher version was lowered")
	}
}
