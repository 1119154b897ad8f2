package keys

import (
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
)

// TestRevoked: a revoked key neither signs nor verifies, whatever an older state says.
func TestRevoked(t *testing.T) {
	b := newBench(t)
	b.start()
	older := b.read("state.json")
	b.config.RevokedKeyIDs = []string{id(1)}
	b.refuses("the revoked key")
	b.write("key.pem", privatePEM(2))
	b.start()
	b.wantSigns(2) // at once
	b.wantKeys(2)
	b.config.RevokedKeyIDs = nil // the state keeps it
	b.start()
	b.wantKeys(2)
	b.write("key.pem", privatePEM(1))
	b.pass(0)
	b.wantKeys(2)
	b.wantLog("the revoked key")
	b.degraded("the revoked key", 2)

	b.write("state.json", older) // but not an older copy of the state: the configuration does
	b.write("key.pem", privatePEM(2))
	b.config.RevokedKeyIDs = []string{id(1)}
	b.start()
	b.wantSigns(2)
	b.wantKeys(2)
	b.write("retired.pem", publicPEM(1, 3))
	b.write("only.pem", publicPEM(1))
	b.config.RetiredFiles, b.config.VerifyOnlyFiles = []string{b.path("retired.pem")}, []string{b.path("only.pem")}
	b.write("peers/other.pem", publicPEM(1, 4))
	b.start()
	b.wantKeys(2, 3, 4)
	if len(b.keys.VerifyOnly()) != 0 {
		t.Error("a revoked key verifies")
	}
}

// TestRevokedUnderAnotherID: a revoked key does not come back under an ID of a JWK set or of the configuration, nor one
// that was revoked under such an ID by its digest.
func TestRevokedUnderAnotherID(t *testing.T) {
	named := func(n int, keyID string) *jws.Key {
		return testkit.Must(jws.NewKey(private(n).Public(), jws.KeyOptions{KeyID: keyID}))
	}
	b := newBench(t)
	b.start()
	b.config.RevokedKeyIDs = []string{id(1)}
	b.write("key.pem", privatePEM(2))
	b.write("peers/p.json", set(named(1, "again"), named(3, "peer")))
	b.start()
	if got := testkit.Must(b.keys.Keys(t.Context(), "")); len(got) != 2 || find(got, "peer") == nil || find(got, id(2)) == nil {
		t.Errorf("got %d keys", len(got))
	}
	b.wantLog("the revoked key")
	b.write("key.pem", privatePEM(1))
	b.config.KeyID = "again"
	b.start()
	b.wantLog("key.pem: signing-key-file: got the revoked key")
	b.pass(publish)
	if got := b.signs(); got == "again" {
		t.Error("a revoked key signs")
	}

	b = newBench(t)
	b.config.KeyID = "first"
	b.write("peers/p.json", set(named(3, "peer")))
	b.start()
	b.config.RevokedKeyIDs, b.config.KeyID = []string{"first", "peer"}, "second"
	b.write("key.pem", privatePEM(2))
	b.write("all.pem", publicPEM(1, 3, 4))
	b.config.RetiredFiles = []string{b.path("all.pem")}
	b.write("peers/p.json", set(public(1), public(3), public(5)))
	for range 2 { // the state has it
		b.start()
		got := testkit.Must(b.keys.Keys(t.Context(), ""))
		if len(got) != 3 || find(got, "second") == nil || find(got, id(4)) == nil || find(got, id(5)) == nil {
			t.Errorf("got %d keys\n%s", len(got), b.log)
		}
		b.config.RevokedKeyIDs = nil
	}
}
