package membership

import (
	"context"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
)

// asked is what a verifier does with an authorizer.
func asked(t testing.TB, a attest.Authorizer, r *attest.Result) (*attest.Authorization, error) {
	t.Helper()
	copied := *r
	if err := attest.Membership(context.Background(), a, &copied, nil); err != nil {
		return nil, err
	}
	return &copied.Authorization, nil
}

func testTime() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) }

// recordsOf lists a registry.
func recordsOf(t testing.TB, s *StoreRegistry) []Record {
	t.Helper()
	var out []Record
	if err := s.Records(context.Background(), func(r Record) error { out = append(out, r); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

// AnswerOf is answerOf for tests from outside.
func AnswerOf(t testing.TB, nodeName string, machine attest.Identity) *attest.Result {
	return answerOf(t, nodeName, machine)
}
