package membership

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestFirstUseMaxLifetime: a request to Kubernetes' own signer for longer than MaxLifetime is refused,
// at the hello too, and nothing is recorded. Ours shortens the certificate.
func TestFirstUseMaxLifetime(t *testing.T) {
	for _, c := range []struct {
		signer  string
		seconds int32
		refused bool
	}{
		{csr.SignerKubeAPIServerClientKubelet, 24 * 3600, false},
		{csr.SignerKubeAPIServerClientKubelet, 24*3600 + 1, true},
		{csr.SignerKubeAPIServerClientKubelet, 30 * 24 * 3600, true},
		{csr.SignerKubeAPIServerClientKubelet, 0, false}, // 12 hours
		{csr.SignerClientTPM, 30 * 24 * 3600, false},
	} {
		t.Run(fmt.Sprint(c.signer, " ", c.seconds), func(t *testing.T) {
			w := newEndWorld(t)
			checked := w.ask(c.signer, c.seconds)
			for _, stage := range []attest.Stage{attest.StageHello, attest.StageAnswer} {
				r := attest.NewResult(stage, checked)
				r.Machine, r.Provider = endMachine, "tpm"
				err := attest.AskMembership(t.Context(), w.FirstUse, r)
				if (err != nil) != c.refused || c.refused && csr.Decide(err).Verdict != csr.VerdictDeny {
					t.Errorf("%s: got %v", stage, err)
				}
			}
			if n := len(recordsOf(t, w.registry)); c.refused && n != 0 {
				t.Errorf("%d records of a machine that was refused", n)
			}
		})
	}
}

// TestCheckAuthorizerMaxLifetime: a MaxLifetime under the longest that a request may ask for is an
// error when the verifier is made.
func TestCheckAuthorizerMaxLifetime(t *testing.T) {
	f := newFirstUse(t, Scope{})
	for longest, ok := range map[time.Duration]bool{0: true, testLifetime: true, testLifetime + 1: false} {
		open := attest.Opening{ClusterIDs: []string{testCluster}, Roads: ofTPM("", attest.RoadAK), MaxLifetime: longest}
		for name, a := range map[string]attest.Authorizer{"alone": f.FirstUse, "embedded": embedsFirstUse{f.FirstUse}, "of both": Both(f.FirstUse, f.FirstUse)} {
			if err := attest.CheckAuthorizer(a, open); (err == nil) != ok || !ok && !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("%s, %s: got %v", name, longest, err)
			}
		}
	}
}

// TestEndBeforeWrites: a request for longer than the grant is refused before anything is recorded, with the
// rule about lifetimes.
func TestEndBeforeWrites(t *testing.T) {
	w := newEndWorld(t)
	short := attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
		a := r.InsecureAdmitAnyone()
		a.NotAfter = w.at.Add(time.Hour)
		return a, nil
	})
	for _, c := range []struct {
		signer  string
		seconds int32
		refused bool
	}{{csr.SignerKubeAPIServerClientKubelet, 3540, false}, {csr.SignerKubeAPIServerClientKubelet, 3541, true}, {csr.SignerClientTPM, 24 * 3600, false}} {
		w := newEndWorld(t)
		r := attest.NewResult(attest.StageAnswer, w.ask(c.signer, c.seconds))
		r.Machine, r.Provider = endMachine, "tpm"
		err := attest.AskMembership(t.Context(), Both(short, w.FirstUse), r)
		if (err != nil) != c.refused || c.refused && csr.Decide(err).Reason != "Expiration" {
			t.Errorf("%d s of %s: got %v", c.seconds, c.signer, err)
		}
		if n := len(recordsOf(t, w.registry)); (n == 0) != c.refused {
			t.Errorf("%d s of %s: %d records", c.seconds, c.signer, n)
		}
	}
}
