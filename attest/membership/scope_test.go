package membership

import (
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// ParseScope reads the text of String, and no other.
func TestParseScope(t *testing.T) {
	for _, s := range []Scope{
		{},
		{Road: attest.RoadEK, IdentityClass: "RSA-2048"},
		{Road: attest.RoadEK, IdentityClass: "P-384"},
		{Provider: "gce", Road: attest.RoadDocument},
		{Provider: "gce", Road: attest.RoadDocument, IdentityClass: "class one"},
	} {
		if got, err := ParseScope(s.String()); err != nil || got != s {
			t.Errorf("%q: got %+v, %v", s.String(), got, err)
		}
	}
	for _, text := range []string{"", " ", "ek", "ek RSA", "ek RSA-2048 ", " ek RSA-2048", "ak RSA-2048", "gce", "gce ek", "tpm ak", "document", "gce  document", "gce document ", "EK RSA-2048"} {
		if got, err := ParseScope(text); got != (Scope{}) || !errors.Is(err, CheckRegistryScope) {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
	}
}

// The cluster is required, and stands apart from the text.
func TestScopeCluster(t *testing.T) {
	s := testkit.Must(ParseScope("ek RSA-2048"))
	if err := s.Check(); !errors.Is(err, CheckRegistryScope) {
		t.Errorf("no cluster: got %v", err)
	}
	s.Cluster = testCluster
	if err := s.Check(); err != nil || s.String() != "ek RSA-2048" {
		t.Errorf("got %v, %q", err, s.String())
	}
	for size, ok := range map[int]bool{1: true, 128: true, 129: false} {
		s.Cluster = strings.Repeat("c", size)
		if err := s.Check(); (err == nil) != ok {
			t.Errorf("%d bytes: got %v", size, err)
		}
	}
}

func FuzzParseScope(f *testing.F) {
	for _, text := range []string{"ak", "ek RSA-2048", "gce document", "gce document class", "ek"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseScope(text); err == nil && s.String() != text {
			t.Errorf("%q is read as %+v", text, s)
		}
	})
}
