package attest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/refusal"
)

// The window and the age of an answer, at each end and one beyond.
func TestEndsOfTimes(t *testing.T) {
	issued := ringTime
	for name, c := range map[string]struct {
		window       int64         // seconds
		created, now time.Duration // since issuedAt
		want         Check
	}{
		"no time at all":         {0, 0, 0, ""},
		"the longest window":     {3600, time.Hour, time.Hour, ""},
		"a second longer":        {3601, 0, 0, checkBindingWindow},
		"an end before":          {-1, 0, 0, checkBindingWindow},
		"as early as may be":     {60, -time.Minute, 0, ""},
		"a nanosecond earlier":   {60, -time.Minute - 1, 0, checkAnswerEarly},
		"as late as may be":      {60, time.Minute, time.Minute, ""},
		"a nanosecond later":     {60, time.Minute + 1, time.Minute + 1, CheckAnswerLate},
		"as old as may be":       {60, 0, message.MaxAnswerAge, ""},
		"a nanosecond older":     {60, 0, message.MaxAnswerAge + 1, CheckAnswerOld},
		"a nanosecond to come":   {60, 1, 0, checkFuture},
		"created when looked at": {60, 1, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := &message.Binding{IssuedAt: issued.Unix(), NotAfter: issued.Unix() + c.window}
			request := &csr.Request{Metadata: csr.Metadata{CreationTimestamp: issued.Add(c.created)}}
			err := checkTimes(b, request, issued.Add(c.now))
			if (err == nil) != (c.want == "") || c.want != "" && !errors.Is(err, c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// An authorizer's own refusal stays as it is, one that it wraps becomes one that
// csr.Decide denies, and everything else is tried again.
func TestErrorsOfAuthorizers(t *testing.T) {
	gone := NotMember("gone")
	other := &Error{Check: checkProviderID, Err: CheckMembership}
	for name, c := range map[string]struct {
		err         error
		same, retry bool
	}{
		"its own":          {gone, true, false},
		"its own, wrapped": {errors.Join(errors.New("db"), gone), true, false},
		"the bare check":   {CheckMembership, false, false},
		"under another":    {other, false, false},
		"none":             {errors.New("db"), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := new(Result).ask(t.Context(), AuthorizerFunc(func(context.Context, *Result) (*Authorization, error) { return nil, c.err }))
			if (err == c.err || err.Error() == c.err.Error()) != c.same || errors.Is(err, refusal.ErrRetry) != c.retry { //nolint:errorlint // the very error
				t.Errorf("got %v", err)
			}
			if want := csr.VerdictDeny; !c.retry && csr.Decide(err).Verdict != want {
				t.Errorf("the decision is %v", csr.Decide(err))
			}
		})
	}
	if StageHello.String() != "hello" || StageAnswer.String() != "answer" || !strings.HasPrefix(Stage(0).String(), "stage") {
		t.Error("names of stages")
	}
}
