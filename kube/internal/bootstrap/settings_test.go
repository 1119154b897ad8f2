package bootstrap

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/kube/deploy"
)

const header = "apiVersion: config.nodeattest.github.io/v1alpha1\nkind: BootstrapController\n"

// TestSettings: which controllers run is written down, and the cleaner runs alone.
func TestSettings(t *testing.T) {
	publishes := "publisher: {server: 'https://192.0.2.1:6443', caFile: ca.crt}\n"
	for text, want := range map[string]string{
		"controllers: [signer]\n":                        "",
		"controllers: [cleaner]\n":                       "",
		"controllers: [signer, publisher]\n" + publishes: "",
		"controllers: [publisher]\n" + publishes:         "",

		"":                                      "at least one of signer, publisher, cleaner",
		"controllers: []\n":                     "at least one of",
		"controllers: [signer, signer]\n":       "at most once",
		"controllers: [Signer]\n":               "at most once",
		"controllers: [signer, cleaner]\n":      "a service account of its own",
		"controllers: [publisher]\n":            "both or neither",
		"controllers: [signer]\n" + publishes:   "both or neither",
		"controllers: [signer]\nnamespace: A\n": "the name of a namespace",
		"controllers: [signer]\nother: 1\n":     "other",
		"controllers: [publisher]\npublisher: {server: 'https://192.0.2.1:6443'}\n":                                    "publisher.caFile",
		"controllers: [publisher]\npublisher: {server: 'http://192.0.2.1:6443', caFile: ca.crt}\n":                     "server-url-scheme",
		"controllers: [publisher]\npublisher: {caFile: ca.crt}\n":                                                      "server-url",
		"controllers: [publisher]\npublisher: {server: 'https://user@192.0.2.1', caFile: ca.crt}\n":                    "kubeconfig-credentials",
		"controllers: [publisher]\npublisher: {server: 'https://192.0.2.1', servers: ['192.0.2.2'], caFile: ca.crt}\n": "server-url-scheme",
	} {
		s, err := Parse([]byte(header + text))
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", text, err)
		case want == "" && (s.MetricsAddress != "127.0.0.1:8086" || s.HealthAddress != ":8087" || s.Namespace != "nodeattest-system"):
			t.Errorf("%q: %+v", text, s)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	for text, account := range map[string]string{"[signer]": "bootstrap-signer", "[cleaner]": "bootstrap-cleaner"} {
		if s, err := Parse([]byte(header + "controllers: " + text)); err != nil || s.Account() != account {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestShippedSettings: the page of all settings is a configuration, with each default.
func TestShippedSettings(t *testing.T) {
	shipped, err := deploy.Manifests("bootstrap/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.Join(shipped, []byte("\n---\n"))
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	least, err := Parse([]byte(header + "controllers: [signer]\n"))
	if err != nil || least.Namespace != s.Namespace || least.MetricsAddress != s.MetricsAddress || least.HealthAddress != s.HealthAddress {
		t.Errorf("the page has %+v, %v", s, err)
	}
	for _, field := range []string{"controllers", "publisher", "server", "servers", "caFile", "replace", "namespace", "metricsAddress", "healthAddress"} {
		if !bytes.Contains(text, []byte(field+":")) {
			t.Errorf("the page has no %s", field)
		}
	}
}

// TestRead names the file, and refuses a large one.
func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "signer.yaml")
	if _, err := Read(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for _, text := range []string{header, header + "#" + strings.Repeat("x", 1<<20)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%d bytes: %v", len(text), err)
		}
	}
}

// TestFollow: a changed file ends the program once it can be used.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "signer.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(header + "controllers: [signer]\n")
	s, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		text    string
		changed bool
	}{{header + "controllers: [signer]\n", false}, {header, false}, {header + "controllers: [cleaner]\n", true}} {
		write(step.text)
		if changed, err := s.changed(); changed != step.changed || (err != nil) != (step.text == header) {
			t.Errorf("%q: changed %t, %v", step.text, changed, err)
		}
	}
}

// TestCache: it holds the token Secrets and one ConfigMap, without what no controller reads.
func TestCache(t *testing.T) {
	opts := CacheOptions()
	selectors := map[string]string{}
	for object, by := range opts.ByObject {
		for namespace, c := range by.Namespaces {
			switch object.(type) {
			case *corev1.Secret:
				selectors["Secret "+namespace] = c.FieldSelector.String()
			case *corev1.ConfigMap:
				selectors["ConfigMap "+namespace] = c.FieldSelector.String()
			}
		}
	}
	if len(selectors) != 2 || selectors["Secret kube-system"] != "type=bootstrap.kubernetes.io/token" || selectors["ConfigMap kube-public"] != "metadata.name=cluster-info" || !opts.ReaderFailOnMissingInformer {
		t.Errorf("it watches %v", selectors)
	}
	deleted := metav1.NewTime(time.Unix(1, 0))
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "ns", UID: "u", ResourceVersion: "1", DeletionTimestamp: &deleted,
		Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "a copy"}, Labels: map[string]string{"a": "b"}, ManagedFields: make([]metav1.ManagedFieldsEntry, 1)}}
	if _, err := opts.DefaultTransform(s); err != nil || s.Annotations != nil || s.Labels != nil || s.ManagedFields != nil ||
		s.Name != "n" || s.Namespace != "ns" || s.UID != "u" || s.ResourceVersion != "1" || !s.DeletionTimestamp.Equal(&deleted) {
		t.Errorf("the Secret is %+v, %v", s, err)
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{"a": "b"}, ManagedFields: make([]metav1.ManagedFieldsEntry, 1)}}
	if _, err := opts.DefaultTransform(m); err != nil || m.ManagedFields != nil || m.Annotations["a"] != "b" {
		t.Errorf("the ConfigMap is %+v, %v", m, err)
	}
}
