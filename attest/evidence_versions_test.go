package attest

import (
	"errors"
	"slices"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// reads is a kind that reads versions 1 and 2.
func reads() *fakeKind {
	return &fakeKind{describe: func(d *Description) { d.Versions = []int{1, 2} }}
}

// writes is a node whose prover writes one version.
func writes(t *testing.T, version int) *fakeNode {
	t.Helper()
	p := newFakeProver()
	p.version = version
	return newFakeNode(t, p)
}

// A version below the minimum is refused, with a list of the accepted versions.
func TestVersions(t *testing.T) {
	for name, c := range map[string]struct {
		minimum, version int
		supported        []string // nil for accepted
	}{
		"1 of both":        {0, 1, nil},
		"2 of both":        {0, 2, nil},
		"3 of both":        {0, 3, []string{"fake/v2", "fake/v1"}},
		"1 at least 1":     {1, 1, nil},
		"1 at least 2":     {2, 1, []string{"fake/v2"}},
		"2 at least 2":     {2, 2, nil},
		"3 at least 2":     {2, 3, []string{"fake/v2"}},
		"21 is not 2 or 1": {0, 21, []string{"fake/v2", "fake/v1"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := reads()
			var inquired []int
			k.find = func(_ Stage, q *Inquiry, f *Findings) *Findings { inquired = append(inquired, q.Version); return f }
			config := fakeConfig(t, k)
			config.MinimumVersions = map[string]int{"fake": c.minimum}
			v := testkit.Must(NewVerifier(config))
			r, err := joinFake(t, v, writes(t, c.version))
			if c.supported == nil {
				if want := []int{c.version, c.version}; err != nil || r.Attested() == nil || !slices.Equal(k.versions, want) || !slices.Equal(inquired, want) {
					t.Errorf("got %v, read %v, asked about %v", err, k.versions, inquired)
				}
				return
			}
			expectRefusal(t, err, csr.CheckProviderVersion)
			u, ok := errors.AsType[*csr.UnsupportedVersionError](err)
			if !ok || !slices.Equal(u.Supported, c.supported) || len(k.asked) != 0 {
				t.Errorf("got %+v, asked for %q", u, k.asked)
			}
		})
	}
}

// An answer in one version does not answer a challenge of another.
func TestVersionsDoNotMix(t *testing.T) {
	for name, c := range map[string]struct {
		hello, answer int
		want          Check
	}{
		"1 and 1": {1, 1, ""}, "2 and 2": {2, 2, ""}, "1 and 2": {1, 2, CheckQualifyingData}, "2 and 1": {2, 1, CheckQualifyingData},
	} {
		t.Run(name, func(t *testing.T) {
			v, first, second := newFakeVerifier(t, reads()), writes(t, c.hello), writes(t, c.answer)
			second.key, second.subject = first.key, first.subject
			challenge := testkit.Must(v.Challenge(t.Context(), first.hello(t)))
			r, err := v.Verify(t.Context(), second.answer(t, challenge))
			expectRefusal(t, err, c.want)
			if (r != nil) != (c.want == "") {
				t.Errorf("got %v", r)
			}
		})
	}
	t.Run("relabelled", func(t *testing.T) {
		v, n := newFakeVerifier(t, reads()), writes(t, 1)
		challenge := testkit.Must(v.Challenge(t.Context(), n.hello(t)))
		_, err := v.Verify(t.Context(), relabelled(t, n.answer(t, challenge), "fake/v2"))
		expectRefusal(t, err, CheckQualifyingData)
	})
}

// The minimum is that of the configuration when the verifier was made.
func TestMinimumVersionsAreCopied(t *testing.T) {
	config := fakeConfig(t, reads())
	config.MinimumVersions = map[string]int{"fake": 2}
	v := testkit.Must(NewVerifier(config))
	config.MinimumVersions["fake"] = 1
	_, err := joinFake(t, v, writes(t, 1))
	expectRefusal(t, err, csr.CheckProviderVersion)
}
