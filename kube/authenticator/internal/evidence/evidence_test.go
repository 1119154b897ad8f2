package evidence

import (
	"context"
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// writer is a prover of one version that only counts how often it is open.
type writer struct {
	attest.Prover
	version int
	open    *int
}

func (w writer) Provider() string { return "rack" }
func (w writer) Version() int     { return w.version }
func (w writer) Close() error     { *w.open--; return nil }

// rack makes the versions of a kind, and counts the provers that are open.
func rack(minimum int, numbers ...int) (*Versions, *int) {
	open := new(int)
	v := &Versions{Provider: "rack", Minimum: minimum}
	for _, n := range numbers {
		v.Open = append(v.Open, func(context.Context) (attest.Prover, error) {
			*open++
			return writer{version: n, open: open}, nil
		})
	}
	return v, open
}

func TestCheck(t *testing.T) {
	two, _ := rack(1, 2, 1)
	negative, _ := rack(-1, 1)
	for name, row := range map[string]struct {
		v  *Versions
		ok bool
	}{
		"two versions":                 {two, true},
		"no evidence":                  {&Versions{}, true},
		"a minimum without evidence":   {&Versions{Minimum: 1}, false},
		"no function":                  {&Versions{Provider: "rack", Open: []Opener{}}, false},
		"a function that is not there": {&Versions{Provider: "rack", Open: []Opener{nil}}, false},
		"a minimum below zero":         {negative, false},
	} {
		if err := row.v.Check(); row.ok != (err == nil) || err != nil && !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOlder: the newest version below the one that was denied that the denial names and the minimum
// allows. Other versions are closed.
func TestOlder(t *testing.T) {
	for name, row := range map[string]struct {
		minimum, denied int
		listed          []string
		want            int // 0: an error
	}{
		"the one before":         {1, 3, []string{"rack/v2", "rack/v1"}, 2},
		"the one before that":    {1, 3, []string{"rack/v1"}, 1},
		"below the minimum":      {2, 3, []string{"rack/v1"}, 0},
		"no minimum":             {0, 3, []string{"rack/v2"}, 0},
		"the one that is denied": {1, 3, []string{"rack/v3"}, 0},
		"another kind's":         {1, 3, []string{"tpm/v1"}, 0},
		"none":                   {1, 3, []string{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			v, open := rack(row.minimum, 3, 2, 1)
			annotations := map[string]string{}
			if key, value := (&csr.UnsupportedVersionError{Supported: row.listed}).Annotation(); value != "" {
				annotations[key] = value
			}
			opened, err := v.Older(t.Context(), row.denied, annotations)
			if row.want == 0 {
				if err == nil || opened.Prover != nil || *open != 0 {
					t.Errorf("got %v, %v; %d open", opened, err, *open)
				}
				return
			}
			if err != nil || opened.Prover.Version() != row.want || *open != 1 {
				t.Fatalf("got %v, %v; %d open", opened, err, *open)
			}
			if err := opened.Attester.Close(); err != nil || *open != 0 {
				t.Errorf("%v; %d open", err, *open)
			}
		})
	}
}

func TestNewest(t *testing.T) {
	v, open := rack(2, 2, 1)
	opened, err := v.Newest(t.Context())
	if err != nil || opened.Prover.Version() != 2 || opened.Attester.Close() != nil || *open != 0 {
		t.Fatalf("%v, %v; %d open", opened, err, *open)
	}
	v.Minimum = 3
	if _, err := v.Newest(t.Context()); !errors.Is(err, refusal.CheckConfig) || *open != 0 {
		t.Errorf("a minimum above the newest: %v; %d open", err, *open)
	}
}

func TestOf(t *testing.T) {
	if got := Of("tpm") + ", " + Of("insecure"); got != "evidence of tpm, no evidence" {
		t.Error(got)
	}
}
