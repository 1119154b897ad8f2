package authenticator

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/evidence"
)

// speaker is a node whose evidence has several versions, and its requests.
type speaker struct {
	*Authenticator
	f      *fakeAPI
	filed  []string // the formats of the requests, such as "platform/v2"
	opened int      // provers that are open
}

// newSpeaker makes a node that writes those versions, of a control plane that reads some.
func newSpeaker(t *testing.T, reads, writes []int, minimum int) *speaker {
	t.Helper()
	s := &speaker{f: newFakeAPI(t)}
	s.reads(reads...)
	open := make([]evidence.Opener, len(writes))
	for i, version := range writes {
		open[i] = func(context.Context) (attest.Prover, error) {
			s.opened++
			prover, err := document.NewProver(attesttest.PlatformProvider, version, s.f.platform.Machine(attesttest.MachineOne))
			return &counting{prover, s}, err
		}
	}
	s.Authenticator, _ = newNode(t, s.f, func(c *Config) {
		c.Kind, c.MinimumVersion = EvidenceOf(attesttest.PlatformProvider, open...), minimum
	})
	s.denies(nil)
	return s
}

// counting is a prover that says when it is closed.
type counting struct {
	*document.Prover
	s *speaker
}

func (c *counting) Close() error {
	c.s.opened--
	return nil
}

// reads changes the control plane to one that reads those versions.
func (s *speaker) reads(versions ...int) {
	v := s.f.newVerifier(versions...)
	s.f.set(func() { s.f.verifier = v })
}

// denies has an attacker deny requests, if deny says so, before the control plane decides.
func (s *speaker) denies(deny func(o *certificatesv1.CertificateSigningRequest) bool) {
	s.f.set(func() {
		s.filed = nil
		s.f.decide = func(o *certificatesv1.CertificateSigningRequest) bool {
			b, err := csr.Parse(o.Spec.Request)
			if err != nil {
				s.f.t.Error(err)
				return true
			}
			s.filed = append(s.filed, b.Provider)
			return deny != nil && deny(o)
		}
	})
}

// attempt has the node make one attempt, and returns its requests.
func (s *speaker) attempt(t *testing.T) ([]string, error) {
	t.Helper()
	err := s.Rotate(t.Context())
	var filed []string
	s.f.set(func() { filed, s.filed = s.filed, nil })
	if s.opened != 0 {
		t.Errorf("%d provers are still open", s.opened)
	}
	return filed, err
}

// formats returns the formats of a node's requests, by their versions.
func formats(versions ...int) (all []string) {
	for _, v := range versions {
		all = append(all, attesttest.PlatformProvider+"/v"+strconv.Itoa(v))
	}
	return all
}

// TestVersions is the specification of a node's requests where the control plane reads other
// versions than its newest.
func TestVersions(t *testing.T) {
	for name, row := range map[string]struct {
		reads, writes []int
		minimum       int
		filed         []int  // a denied hello, or a hello and an answer
		want          string // in the error; "" for a certificate
	}{
		"the only one":                    {[]int{1}, []int{1}, 0, []int{1, 1}, ""},
		"both speak both":                 {[]int{1, 2}, []int{2, 1}, 0, []int{2, 2}, ""},
		"also where the older is allowed": {[]int{1, 2}, []int{2, 1}, 1, []int{2, 2}, ""},
		"the older is withdrawn":          {[]int{2}, []int{2, 1}, 1, []int{2, 2}, ""},
		"an older node":                   {[]int{1, 2}, []int{1}, 0, []int{1, 1}, ""},
		"an older node, withdrawn":        {[]int{2}, []int{1}, 0, []int{1}, "want platform/v2"},
		"an older node, older allowed":    {[]int{2}, []int{1}, 1, []int{1}, "want platform/v2"},
		"an older control plane":          {[]int{1}, []int{2, 1}, 1, []int{2, 1, 1}, ""},
		"which no file allows":            {[]int{1}, []int{2, 1}, 0, []int{2}, "want platform/v1"},
		"which the file forbids":          {[]int{1}, []int{2, 1}, 2, []int{2}, "MinimumVersion 2"},
		"the best of two":                 {[]int{1, 2}, []int{3, 2, 1}, 1, []int{3, 2, 2}, ""},
		"the best of two, with a gap":     {[]int{1, 3}, []int{4, 2, 1}, 1, []int{4, 1, 1}, ""},
		"the best is the minimum":         {[]int{1, 2}, []int{3, 2, 1}, 2, []int{3, 2, 2}, ""},
		"below the minimum":               {[]int{1}, []int{3, 2, 1}, 2, []int{3}, `got "platform/v1", want platform/v2`},
		"a minimum between two":           {[]int{1}, []int{3, 1}, 2, []int{3}, "MinimumVersion 2"},
		"nothing in common":               {[]int{3}, []int{2, 1}, 1, []int{2}, `got "platform/v3", want platform/v1`},
		"a minimum above the newest":      {[]int{1, 2}, []int{2, 1}, 3, nil, "MinimumVersion 3, want at most 2"},
		"a kind with the oldest first":    {[]int{1}, []int{2, 3}, 1, []int{2}, "version 3 after 2, want the newest first"},
		"a kind with a version twice":     {[]int{1}, []int{2, 2}, 1, []int{2}, "version 2 after 2"},
		"a kind with version 0":           {[]int{1}, []int{2, 0}, 1, []int{2}, "a Prover of that version"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpeaker(t, row.reads, row.writes, row.minimum)
			for range 2 { // the second time as the node, if it has a certificate
				filed, err := s.attempt(t)
				if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) || !slices.Equal(filed, formats(row.filed...)) {
					t.Errorf("filed %q, and got %v, want %q", filed, err, row.want)
				}
				if err != nil && isDenied(err) != (row.filed != nil) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

// TestVersionsAtEveryRenewal: a control plane that is upgraded, and rolled back, gets the best
// version each time, also from a node that has just filed an older one.
func TestVersionsAtEveryRenewal(t *testing.T) {
	s := newSpeaker(t, []int{1}, []int{2, 1}, 1)
	for n, row := range []struct{ reads, filed []int }{
		{[]int{1}, []int{2, 1, 1}}, {[]int{1}, []int{2, 1, 1}}, {[]int{1, 2}, []int{2, 2}}, {[]int{1}, []int{2, 1, 1}}, {[]int{2}, []int{2, 2}},
	} {
		s.reads(row.reads...)
		if filed, err := s.attempt(t); err != nil || !slices.Equal(filed, formats(row.filed...)) {
			t.Errorf("renewal %d: filed %q, and got %v", n, filed, err)
		}
	}
	t.Run("between hello and answer", func(t *testing.T) {
		rolledBack := s.f.newVerifier(1)
		s.denies(func(*certificatesv1.CertificateSigningRequest) bool {
			if len(s.filed) == 2 {
				s.f.verifier = rolledBack
			}
			return false
		})
		if filed, err := s.attempt(t); err != nil || !slices.Equal(filed, formats(2, 2, 1, 1)) {
			t.Errorf("filed %q, and got %v", filed, err)
		}
	})
}

// TestForgedVersions: an account that may deny requests gets one more request out of a node,
// in a version that the node's operator allows, and nothing that lasts.
func TestForgedVersions(t *testing.T) {
	key, _ := new(csr.UnsupportedVersionError).Annotation()
	long := "platform/v1" + strings.Repeat(",p/v1", 201) // 1016 bytes
	for name, row := range map[string]struct {
		minimum int
		reason  string
		list    string
		filed   []int
	}{
		"an older one":                    {1, "ProviderVersion", "platform/v1", []int{2, 1}},
		"that the operator does not want": {0, "ProviderVersion", "platform/v1", []int{2}},
		"the same":                        {1, "ProviderVersion", "platform/v2", []int{2}},
		"a newer one":                     {1, "ProviderVersion", "platform/v3", []int{2}},
		"all":                             {1, "ProviderVersion", "platform/v3,platform/v2,platform/v1", []int{2, 1}},
		"version 0":                       {1, "ProviderVersion", "platform/v0", []int{2}},
		"another kind's":                  {1, "ProviderVersion", "insecure/v1", []int{2}},
		"no list":                         {1, "ProviderVersion", "platform/v1, platform/v1", []int{2}},
		"nothing":                         {1, "ProviderVersion", "", []int{2}},
		"of 1 KiB":                        {1, "ProviderVersion", long + ",pppp/v1", []int{2, 1}},
		"of a byte more":                  {1, "ProviderVersion", long + ",ppppp/v1", []int{2}},
		"for another reason":              {1, "NotAMember", "platform/v1", []int{2}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpeaker(t, []int{1, 2}, []int{2, 1}, row.minimum)
			for _, way := range []string{"with the token", "as the node"} {
				s.denies(func(o *certificatesv1.CertificateSigningRequest) bool {
					metav1.SetMetaDataAnnotation(&o.ObjectMeta, key, row.list)
					condition(o, csr.ConditionDenied, row.reason, "a third party's")
					return true
				})
				for range 3 {
					if filed, err := s.attempt(t); !isDenied(err) || !slices.Equal(filed, formats(row.filed...)) {
						t.Errorf("%s: filed %q, and got %v", way, filed, err)
					}
				}
				s.denies(nil)
				if filed, err := s.attempt(t); err != nil || !slices.Equal(filed, formats(2, 2)) {
					t.Errorf("%s: after it, filed %q, and got %v", way, filed, err)
				}
			}
		})
	}
}
