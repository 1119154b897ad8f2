package tpmcert

import (
	"bytes"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

// corpusCAs are the CA certificates of the corpus, roots and intermediates apart.
func corpusCAs(t *testing.T) (roots, intermediates []*x509.Certificate) {
	t.Helper()
	for _, pattern := range []string{"ek-certs/ca/*.der", "vendor-cas/*/*.der", "vendor-cas/*/*/*.der"} {
		files, err := filepath.Glob(filepath.Join(tpmlab.CorpusDir(t), pattern))
		testkit.NoError(t, err)
		for _, file := range files {
			der, err := os.ReadFile(file)
			testkit.NoError(t, err)
			c, err := x509.ParseCertificate(der)
			if err != nil {
				continue
			}
			if bytes.Equal(c.RawIssuer, c.RawSubject) {
				roots = append(roots, c)
			} else {
				intermediates = append(intermediates, c)
			}
		}
	}
	if len(roots) == 0 || len(intermediates) == 0 {
		t.Fatalf("%d roots and %d intermediates in the corpus", len(roots), len(intermediates))
	}
	return roots, intermediates
}

// Real AK certificates hold under their issuer's profile, at a time inside their validity, and no
// EK certificate does. The files are named after their content, but for Google's older ones, which
// have the EK's usage and an AK's key usage.
func TestProfilesOnRealCertificates(t *testing.T) {
	roots, intermediates := corpusCAs(t)
	made := map[string]*issuer{}
	for name, p := range map[string]Profile{"google": ProfileGoogle(), "microsoft": ProfileMicrosoftAIK(), "tcg": ProfileTCG(), "azure": ProfileAzure()} {
		t.Run(name, func(t *testing.T) {
			i, err := newIssuer(&Issuer{Roots: roots, Intermediates: intermediates, Profile: p}, newLinkMemory())
			testkit.NoError(t, err)
			made[name] = i
		})
	}
	files, err := filepath.Glob(filepath.Join(tpmlab.CorpusDir(t), "ek-certs/leaf/*.der"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d leaves, %v", len(files), err)
	}
	accepted := map[string]string{}
	for _, file := range files {
		der, err := os.ReadFile(file)
		testkit.NoError(t, err)
		p, err := ParseAKPresented([][]byte{der})
		if err != nil {
			continue // refused before any profile is asked
		}
		for name, i := range made {
			if err := acceptedAt(i, p); err == nil {
				accepted[filepath.Base(file)] += name + " "
			} else if !hasCheck(err) {
				t.Errorf("%s under %s: %v is no check", file, name, err)
			}
		}
	}
	for _, file := range files {
		name := filepath.Base(file)
		switch got := accepted[name]; {
		case strings.HasPrefix(name, "GOOG-"):
			isEK := name == "GOOG-gce-RSA2048-3722cd55.der" || name == "GOOG-gce-RSA2048-8f5a0701.der"
			if isEK && got != "" || !isEK && got != "google " {
				t.Errorf("%s: accepted by %q", name, got)
			}
		case strings.Contains(name, "-ek-") && got != "":
			t.Errorf("%s: accepted by %q", name, got)
		}
	}
	if n := strings.Count(strings.Join(values(accepted), ""), "microsoft"); n < 10 {
		t.Errorf("%d certificates hold under the Microsoft profile, want at least 10: %v", n, accepted)
	}
}

// acceptedAt tries some times inside the leaf's validity: validities in old chains overlap only in
// part.
func acceptedAt(i *issuer, p *AKPresented) (err error) {
	step := p.leaf.NotAfter.Sub(p.leaf.NotBefore) / 20
	for n := range 20 {
		at := p.leaf.NotBefore.Add(time.Duration(n)*step + time.Second)
		if _, err = i.holds(p, at); err == nil {
			return i.profile.check(p.Leaf(), p.leaf.san)
		}
	}
	return err
}

func values(m map[string]string) []string {
	var out []string
	for _, v := range m {
		out = append(out, v)
	}
	return out
}
