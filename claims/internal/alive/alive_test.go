package alive

import (
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// TestCheck: each way in which an object is not the one that a token names, in the order in
// which they count.
func TestCheck(t *testing.T) {
	now := time.Unix(1700000000, 0)
	dead := errors.New("connection refused")
	for _, tt := range []struct {
		name   string
		answer Answer
		before time.Time
		want   refusal.Check
	}{
		{"there", Answer{Found: true, UID: "u"}, now, ""},
		{"to be deleted now", Answer{Found: true, UID: "u", Deleted: &now}, now, ""},
		{"deleted before", Answer{Found: true, UID: "u", Deleted: &now}, now.Add(1), "pod-deleted"},
		{"deleted, with no grace", Answer{Found: true, UID: "u", Deleted: &now}, time.Time{}, "pod-deleted"},
		{"made again", Answer{Found: true, UID: "v", Deleted: &now}, now.Add(1), "pod-uid"},
		{"gone", Answer{Err: ErrNotFound}, now, "pod-gone"},
		{"gone, and an object", Answer{Found: true, UID: "u", Err: ErrNotFound}, now, "pod-gone"},
		{"no answer", Answer{}, now, refusal.ErrRetry},
		{"an error", Answer{Err: dead}, now, refusal.ErrRetry},
		{"an error and an object", Answer{Found: true, UID: "u", Err: dead}, now, refusal.ErrRetry},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Pod.Compare("p", "u", tt.answer, tt.before)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && !errors.Is(err, tt.want):
				t.Errorf("got %v, want %v", err, tt.want)
			case tt.answer.Err != nil && !errors.Is(err, tt.answer.Err):
				t.Errorf("%v does not hold %v", err, tt.answer.Err)
			}
		})
	}
}
