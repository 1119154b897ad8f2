package keys

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
)

// TestKeyFilePermissions: a key file that others may have read or written is not used.
func TestKeyFilePermissions(t *testing.T) {
	for name, spoil := range map[string]func(b *bench, path string){
		"read by others":        func(_ *bench, path string) { testkit.MustDo(os.Chmod(path, 0o604)) },
		"read by the group":     func(_ *bench, path string) { testkit.MustDo(os.Chmod(path, 0o640)) },
		"written by others":     func(_ *bench, path string) { testkit.MustDo(os.Chmod(path, 0o602)) },
		"of another user":       func(_ *bench, path string) { testkit.MustDo(os.Chown(path, 12345, 0)) },
		"folder open to others": func(b *bench, _ string) { testkit.MustDo(os.Chmod(b.dir, 0o777)) },
		"a link": func(b *bench, path string) {
			testkit.MustDo(os.Symlink(b.path("key.pem"), path+".l"))
			testkit.MustDo(os.Rename(path+".l", path))
		},
		"gone":                   func(_ *bench, path string) { testkit.MustDo(os.Remove(path)) },
		"a folder":               func(_ *bench, path string) { testkit.MustDo(os.Remove(path)); testkit.MustDo(os.Mkdir(path, 0o700)) },
		"a device":               func(_ *bench, path string) { mknod(path, 0o020600, 1<<8|5) },
		"a pipe without writers": func(_ *bench, path string) { mknod(path, 0o010600, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.start()
			b.write("key.pem", privatePEM(2))
			spoil(b, b.path("key.pem"))
			b.pass(0)
			b.pass(publish)
			b.wantSigns(1)
			if b.keys.Status().Failures == 0 {
				t.Error("no failure was counted")
			}
		})
	}
}

// TestPeersUnfit refuses all but files of public keys that root or this user wrote.
func TestPeersUnfit(t *testing.T) {
	curve := private(1).(*ecdsa.PrivateKey).Curve
	many := ""
	for range maxPeers + 1 {
		key := testkit.Must(ecdsa.GenerateKey(curve, rand.Reader))
		many += block("PUBLIC KEY", testkit.Must(x509.MarshalPKIXPublicKey(&key.PublicKey)))
	}
	other := testkit.Must(jws.NewKey(private(2).Public(), jws.KeyOptions{KeyID: id(1)}))
	pss := testkit.Must(jws.NewKey(private(0).Public(), jws.KeyOptions{Algorithm: jws.PS256}))
	path := func(b *bench) string { return b.path("peers/p.pem") }
	for name, spoil := range map[string]func(b *bench){
		"a private key":           func(b *bench) { b.write("peers/p.pem", privatePEM(2)) },
		"no key":                  func(b *bench) { b.write("peers/p.pem", "") },
		"another block":           func(b *bench) { b.write("peers/p.pem", block("PUBLIC KEY", []byte("x"))) },
		"a whole and a cut block": func(b *bench) { b.write("peers/p.pem", publicPEM(2)+publicPEM(3)[:50]) },
		"another name":            func(b *bench) { b.write("peers/p.txt", publicPEM(2)) },
		"PEM as JSON":             func(b *bench) { b.write("peers/p.json", publicPEM(2)) },
		"an empty set":            func(b *bench) { b.write("peers/p.json", `{"keys":[]}`) },
		"a cut set":               func(b *bench) { b.write("peers/p.json", set(public(2))[:100]) },
		"PS256":                   func(b *bench) { b.write("peers/p.json", set(pss)) },
		"our key ID":              func(b *bench) { b.write("peers/p.json", set(other)) },
		"a large file":            func(b *bench) { b.write("peers/p.pem", publicPEM(2)+strings.Repeat("\n", maxPublicFile)) },
		"many keys":               func(b *bench) { b.write("peers/p.pem", many) },
		"a link": func(b *bench) {
			b.write("other.pem", publicPEM(2))
			testkit.MustDo(os.Symlink("../other.pem", path(b)))
		},
		"a folder":                func(b *bench) { testkit.MustDo(os.Mkdir(path(b), 0o700)) },
		"a pipe":                  func(b *bench) { mknod(path(b), 0o010600, 0) },
		"a device":                func(b *bench) { mknod(path(b), 0o020600, 1<<8|5) },
		"written by others":       func(b *bench) { b.write("peers/p.pem", publicPEM(2)); testkit.MustDo(os.Chmod(path(b), 0o666)) },
		"of another user":         func(b *bench) { b.write("peers/p.pem", publicPEM(2)); testkit.MustDo(os.Chown(path(b), 12345, 0)) },
		"a folder open to others": func(b *bench) { b.write("peers/p.pem", publicPEM(2)); testkit.MustDo(os.Chmod(b.path("peers"), 0o777)) },
		"10,000 files": func(b *bench) {
			for n := range 10_000 {
				testkit.MustDo(os.WriteFile(b.path(fmt.Sprintf("peers/%d.pem", n)), []byte(publicPEM(2)), 0o600))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.write("peers/good.pem", publicPEM(5))
			b.start()
			spoil(b)
			began := time.Now()
			b.pass(0)
			b.pass(0)
			b.wantKeys(1, 5)
			if got := testkit.Must(b.keys.Keys(t.Context(), id(1))); !same(got[0], public(1)) {
				t.Error("our key ID is a peer's")
			}
			if b.keys.Status().Failures != 2 || strings.Count(b.log.String(), "file not used") != 1 {
				t.Errorf("%+v\n%s", b.keys.Status(), b.log)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("took %s", took)
			}
			b.start() // no peer keeps the signer from starting
		})
	}
}

// mknod replaces a file by a device or a pipe.
func mknod(path string, mode uint32, device int) {
	_ = os.Remove(path)
	testkit.MustDo(syscall.Mknod(path, mode, device))
}
