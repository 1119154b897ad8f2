package csr_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
)

// TestNegotiation is the whole round: what a provider reads, the annotation, and the version that
// both know.
func TestNegotiation(t *testing.T) {
	key, value := (&csr.UnsupportedVersionError{Supported: []string{"tpm/v3", "tpm/v2"}}).Annotation()
	if key != csr.AnnotationVersions || value != "tpm/v3,tpm/v2" {
		t.Errorf("annotation %s: %s", key, value)
	}
	if chosen, err := csr.ChooseVersion(map[string]string{key: value}, []string{"tpm/v2", "tpm/v3", "tpm/v4"}); err != nil || chosen != "tpm/v3" {
		t.Errorf("chose %q, %v", chosen, err)
	}
}

func TestChooseVersion(t *testing.T) {
	speaks := []string{"tpm/v2", "tpm/v3"}
	for row, c := range []struct{ value, want string }{
		{"tpm/v3,tpm/v2", "tpm/v3"},
		{"tpm/v2", "tpm/v2"},
		{"tpm/v2,tpm/v9,aws/v3", "tpm/v2"},
		{"", ""},
		{"tpm/v1", ""}, // whoever writes the annotation cannot make the node go back to v1
		{"aws/v3", ""},
		{"tpm/v3, tpm/v2", ""},
		{"tpm/v3,", ""},
		{"tpm/v03", ""},
		{"insecure/v1", ""},
		{strings.Repeat("tpm/v3,", 200) + "tpm/v3", ""},
	} {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			got, err := csr.ChooseVersion(map[string]string{csr.AnnotationVersions: c.value}, speaks)
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%.40q: got %q, %v", c.value, got, err)
			}
			if err != nil && !errors.Is(err, csr.CheckProviderVersion) {
				t.Errorf("%.40q: %v", c.value, err)
			}
		})
	}
	if _, err := csr.ChooseVersion(nil, speaks); err == nil {
		t.Error("no annotations")
	}
}

func FuzzChooseVersion(f *testing.F) {
	for _, s := range []string{"tpm/v1", "tpm/v2,tpm/v1", ",", "tpm/v", "x/v999999999,tpm/v2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got, err := csr.ChooseVersion(map[string]string{csr.AnnotationVersions: value}, []string{"tpm/v1", "tpm/v2"})
		if err == nil && !strings.Contains(","+value+",", ","+got+",") || err != nil && got != "" {
			t.Errorf("%q: got %q, %v", value, got, err)
		}
	})
}
