package keys

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	publish = time.Minute
	retain  = time.Hour
)

// pool are keys that tests share: making them takes time.
var pool = sync.OnceValue(func() []crypto.Signer {
	keys := []crypto.Signer{testkit.Must(rsa.GenerateKey(rand.Reader, 2048))}
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521(), elliptic.P256(), elliptic.P256(), elliptic.P256()} {
		keys = append(keys, testkit.Must(ecdsa.GenerateKey(curve, rand.Reader)))
	}
	return keys
})

func private(n int) crypto.Signer { return pool()[n] }

func public(n int) *jws.Key { return testkit.Must(jws.NewKey(private(n).Public(), jws.KeyOptions{})) }

func id(n int) string { return public(n).KeyID() }

func block(label string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der}))
}

// privatePEM has the given keys, in PKCS #8.
func privatePEM(keys ...int) string {
	text := ""
	for _, n := range keys {
		text += block("PRIVATE KEY", testkit.Must(x509.MarshalPKCS8PrivateKey(private(n))))
	}
	return text
}

func publicPEM(keys ...int) string {
	text := ""
	for _, n := range keys {
		text += block("PUBLIC KEY", testkit.Must(x509.MarshalPKIXPublicKey(private(n).Public())))
	}
	return text
}

// bench is a folder with a signer's files, and a clock.
type bench struct {
	t      testing.TB
	dir    string
	config Config
	log    *testkit.Log
	clock  time.Time
	keys   *Keys
}

func newBench(t testing.TB) *bench {
	b := &bench{t: t, dir: t.TempDir(), log: new(testkit.Log), clock: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	testkit.MustDo(os.Mkdir(b.path("peers"), 0o700))
	b.config = Config{
		KeyFile: b.path("key.pem"), StateFile: b.path("state.json"), PeersFolder: b.path("peers"), Issuer: "https://cluster.example",
		Publish: Duration(publish), Retain: Duration(retain),
		Log: slog.New(slog.NewTextHandler(b.log, nil)), Now: func() time.Time { return b.clock },
	}
	b.write("key.pem", privatePEM(1))
	return b
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// write replaces a file as a careful operator does.
func (b *bench) write(name, text string) {
	b.t.Helper()
	testkit.NoError(b.t, os.WriteFile(b.path(name)+".new", []byte(text), 0o600))
	testkit.NoError(b.t, os.Rename(b.path(name)+".new", b.path(name)))
}

func (b *bench) read(name string) string {
	return string(testkit.Must(os.ReadFile(b.path(name))))
}

// start starts a process anew.
func (b *bench) start() {
	b.t.Helper()
	var err error
	b.keys, err = Open(b.config)
	testkit.NoError(b.t, err)
}

// refuses checks that a process does not start, for the reason that text names.
func (b *bench) refuses(text string) {
	b.t.Helper()
	if _, err := Open(b.config); err == nil || !strings.Contains(err.Error(), text) {
		b.t.Errorf("got %v, want %s", err, text)
	}
}

// degraded checks that a process starts, logs text, and publishes the keys of its state, and that it signs nothing.
func (b *bench) degraded(text string, want ...int) {
	b.t.Helper()
	b.log = new(testkit.Log)
	b.config.Log = slog.New(slog.NewTextHandler(b.log, nil))
	b.start()
	b.wantLog(text)
	b.wantKeys(want...)
	if _, err := b.keys.Sign(context.Background(), []byte("{}")); !errors.Is(err, refusal.ErrRetry) || b.keys.Status().Ready || b.keys.Status().Failures == 0 {
		b.t.Errorf("got %v, %+v", err, b.keys.Status())
	}
}

// pass lets time pass, and reads the files again.
func (b *bench) pass(d time.Duration) {
	b.clock = b.clock.Add(d)
	b.keys.reload(context.Background())
}

// signs returns the ID of the key that signs, or the error.
func (b *bench) signs() string {
	signature, err := b.keys.Sign(context.Background(), []byte(`{}`))
	if err != nil {
		return err.Error()
	}
	return signature.Key.KeyID()
}

// wantSigns checks which key signs.
func (b *bench) wantSigns(n int) {
	b.t.Helper()
	if got := b.signs(); got != id(n) {
		b.t.Errorf("signs: got %s, want key %d, %s\n%s", got, n, id(n), b.log)
	}
}

// wantKeys checks which keys are published, in any order.
func (b *bench) wantKeys(want ...int) {
	b.t.Helper()
	got := testkit.Must(b.keys.Keys(context.Background(), ""))
	ok := len(got) == len(want)
	for _, n := range want {
		ok = ok && find(got, id(n)) != nil
	}
	if !ok {
		b.t.Errorf("got %d keys, want those of %v\n%s", len(got), want, b.log)
	}
}

func (b *bench) wantLog(text string) {
	b.t.Helper()
	if !strings.Contains(b.log.String(), text) {
		b.t.Errorf("the log lacks %q:\n%s", text, b.log)
	}
}
