package keys

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
)

func set(keys ...*jws.Key) string { return string(testkit.Must(jws.MarshalJWKS(keys))) }

// TestPeers: peers' keys are published and never sign; a file that cannot be used keeps its last content, and
// a key whose file is gone stays for Retain, after a restart as well.
func TestPeers(t *testing.T) {
	b := newBench(t)
	b.start()
	b.wantKeys(1)
	b.write("peers/b.pem", publicPEM(2, 3))
	b.write("peers/c.json", set(public(4)))
	b.write("peers/.d.pem", publicPEM(5))
	b.pass(0)
	b.wantKeys(1, 2, 3, 4)
	b.wantSigns(1)
	if got := testkit.Must(b.keys.Keys(t.Context(), id(3))); len(got) != 1 || !same(got[0], public(3)) {
		t.Errorf("key 3: got %v", got)
	}
	if got := testkit.Must(b.keys.Keys(t.Context(), "unknown")); len(got) != 0 {
		t.Errorf("unknown: got %v", got)
	}
	b.write("peers/b.pem", publicPEM(2, 3)[:250])
	for range 3 {
		b.pass(2 * retain)
	}
	b.wantKeys(1, 2, 3, 4)
	if n := strings.Count(b.log.String(), "file not used"); n != 1 || b.keys.Status().Failures != 3 || b.keys.Status().Peers != 3 {
		t.Errorf("logged %d times, %+v", n, b.keys.Status())
	}
	b.write("peers/b.pem", publicPEM(2))
	b.pass(0)
	b.wantLog("has left the folder")
	b.start()
	b.pass(retain / 2)
	b.wantKeys(1, 2, 3, 4)
	b.start()
	b.pass(retain / 2)
	b.wantKeys(1, 2, 4)

	testkit.MustDo(os.Remove(b.path("peers/c.json")))
	b.clock = b.clock.Add(24 * time.Hour) // while no program runs
	b.start()
	b.wantKeys(1, 2, 4)
	b.write("peers/e.pem", publicPEM(4)) // under another name
	b.pass(2 * retain)
	b.wantKeys(1, 2, 4)
	testkit.MustDo(os.RemoveAll(b.path("peers")))
	b.pass(2 * retain)
	b.wantKeys(1, 2, 4)
	b.start()
	b.pass(2 * retain)
	b.wantKeys(1, 2, 4)
}

// TestPeersLimits takes as many keys as kube-apiserver may be given, and no more.
func TestPeersLimits(t *testing.T) {
	b := newBench(t)
	curve := private(1).(*ecdsa.PrivateKey).Curve
	keys := func(n int) (text string) {
		for range n {
			key := testkit.Must(ecdsa.GenerateKey(curve, rand.Reader))
			text += block("PUBLIC KEY", testkit.Must(x509.MarshalPKIXPublicKey(&key.PublicKey)))
		}
		return text
	}
	b.write("peers/a.pem", keys(maxPeers-1))
	b.write("peers/b.pem", keys(1))
	b.write("peers/c.pem", keys(1))
	b.start()
	if s := b.keys.Status(); s.Peers != maxPeers || s.Failures != 1 {
		t.Errorf("got %+v", s)
	}
	b.write("peers/a.pem", keys(maxPeers-1)) // while those before it stay for Retain
	b.pass(0)
	if s := b.keys.Status(); s.Peers != maxPeers || s.Failures < maxPeers-1 {
		t.Errorf("got %+v", s)
	}
	b.pass(retain)
	if s := b.keys.Status(); s.Peers != maxPeers {
		t.Errorf("got %+v", s)
	}
	if len(b.keys.failing) != 1 {
		t.Errorf("%d errors are kept", len(b.keys.failing))
	}
}

// TestRetiredFiles: their keys leave Retain after they were first read, whatever restarts there are.
func TestRetiredFiles(t *testing.T) {
	b := newBench(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}}
	certificate := testkit.Must(x509.CreateCertificate(rand.Reader, template, template, private(3).Public(), private(3)))
	b.write("retired.pem", publicPEM(2)+block("CERTIFICATE", certificate))
	b.config.RetiredFiles = []string{b.path("retired.pem")}
	b.start()
	b.wantKeys(1, 2, 3)
	b.clock = b.clock.Add(retain / 2)
	b.start()
	b.pass(retain/2 - time.Second)
	b.wantKeys(1, 2, 3)
	b.pass(time.Second)
	b.wantKeys(1)
	b.start() // and does not begin again
	b.wantKeys(1)
	b.write("key.pem", privatePEM(2)) // the way back
	b.pass(0)
	b.pass(publish)
	b.wantSigns(2)
	b.start()
	b.wantSigns(2)
	for _, text := range []string{"", "x", privatePEM(2), publicPEM(2)[:80]} {
		b.write("retired.pem", text)
		b.refuses("retiredFiles")
	}
	b.config.RetiredFiles = []string{b.path("missing.pem")}
	b.refuses("no such file")
}

// TestRetiredFilesOfOwnKey: a key that the signer has retired itself does not begin again once it has left.
func TestRetiredFilesOfOwnKey(t *testing.T) {
	b := newBench(t)
	b.start()
	b.write("key.pem", privatePEM(2))
	b.pass(0)
	b.pass(publish)
	b.write("retired.pem", publicPEM(1, 2))
	b.config.RetiredFiles = []string{b.path("retired.pem")}
	b.start()
	b.wantKeys(1, 2)
	b.pass(retain - time.Second)
	b.wantKeys(1, 2)
	b.pass(time.Second)
	b.wantKeys(2)
	b.start()
	b.wantKeys(2)
	b.wantSigns(2)
	b.write("key.pem", privatePEM(3)) // and the one that signs is kept from then on
	b.pass(0)
	b.pass(publish)
	b.pass(retain - time.Second)
	b.wantKeys(2, 3)
	b.start()
	b.wantKeys(2, 3)
}

// TestVerifyOnlyFiles: their keys verify without an end; one that is retired as well is published until the
// first start after its time.
func TestVerifyOnlyFiles(t *testing.T) {
	b := newBench(t)
	b.write("sa.pub", publicPEM(0))
	b.write("legacy.pub", publicPEM(2))
	b.config.RetiredFiles, b.config.VerifyOnlyFiles = []string{b.path("sa.pub")}, []string{b.path("sa.pub"), b.path("legacy.pub")}
	only := func(want ...int) {
		t.Helper()
		got := b.keys.VerifyOnly()
		for _, n := range want {
			if find(got, id(n)) == nil {
				t.Errorf("key %d is missing", n)
			}
		}
		if len(got) != len(want) {
			t.Errorf("got %d keys", len(got))
		}
	}
	b.write("peers/p.pem", publicPEM(2, 3))
	b.start()
	b.wantKeys(0, 1, 3)
	only(2)
	b.pass(2 * retain)
	b.wantKeys(0, 1, 3)
	b.write("key.pem", privatePEM(2)) // it cannot become published before a restart
	b.pass(0)
	b.wantKeys(0, 1, 3)
	b.wantLog("a restart of the program")
	b.write("key.pem", privatePEM(1))
	b.start()
	b.wantKeys(1, 3)
	only(0, 2)
	b.config.VerifyOnlyFiles = append(b.config.VerifyOnlyFiles, b.path("peers/p.pem"))
	b.start() // a peer's key in the state that only verifies now
	b.wantKeys(1)
	only(0, 2, 3)
}

// TestOwnKeyInPeersFolder: the key before a rotation verifies as long as the folder of peers has it, and Retain after.
func TestOwnKeyInPeersFolder(t *testing.T) {
	b := newBench(t)
	b.write("peers/own.pem", publicPEM(1))
	b.start()
	b.write("key.pem", privatePEM(2))
	b.pass(0)
	b.pass(publish)
	for range 3 {
		b.pass(2 * retain)
	}
	b.wantSigns(2)
	b.wantKeys(1, 2)
	testkit.MustDo(os.Remove(b.path("peers/own.pem")))
	b.pass(0)
	b.pass(retain)
	b.wantKeys(2)
}
