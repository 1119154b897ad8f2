package membership

import (
	"context"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
)

// asked calls an authorizer as a verifier does.
func asked(t testing.TB, a attest.Authorizer, r *attest.Result) (*attest.Authorization, error) {
	t.Helper()
	copied := *r
	if err := attest.AskMembership(context.Background(), a, &copied); err != nil {
		return nil, err
	}
	authorization := copied.InsecureAdmitAnyone()
	authorization.Grant = copied.Granted
	return authorization, nil
}

// testCluster is the cluster of every test here, attesttest.ClusterID.
const testCluster = "attesttest"

var testScope = Scope{Cluster: testCluster}

func testTime() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) }

// recordsOf lists a registry.
func recordsOf(t testing.TB, s Registry) []Record {
	t.Helper()
	var out []Record
	for r, err := range s.Records(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, *r)
	}
	return out
}

// AnswerOf is answerOf for tests from outside.
func AnswerOf(t testing.TB, nodeName string, machine attest.Identity) *attest.Result {
	return answerOf(t, nodeName, machine)
}
