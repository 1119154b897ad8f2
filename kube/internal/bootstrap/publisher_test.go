package bootstrap

import (
	"bytes"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/bootstraptoken/bootstraptokentest"
)

// cas writes a CA file.
func cas(t *testing.T, path string, info *bootstraptoken.ClusterInfo) {
	t.Helper()
	var text bytes.Buffer
	for _, ca := range info.CAs {
		if err := pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// published wants a document, and everything else kept.
func (w *world) published(t *testing.T, info *bootstraptoken.ClusterInfo) {
	t.Helper()
	want, err := info.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if data := w.data(t); data["kubeconfig"] != string(want) || data["other"] != "kept" || data["jws-kubeconfig-aaaaaa"] != "a signature" {
		t.Errorf("published %v", data)
	}
}

// TestPublisher follows its CA file through a rotation. A file that empties, and a CA under which the
// server still serves, leave the document as it is, and are reported once.
func TestPublisher(t *testing.T) {
	w, cluster := newWorld(t, Publisher), bootstraptokentest.New(t, bootstraptokentest.Options{})
	path := filepath.Join(t.TempDir(), "ca.crt")
	p := &publisher{client: w, of: &Publication{Server: cluster.URL(), CAFile: path}, reporter: w.reporter}
	first := cluster.Info()
	cas(t, path, first)
	looks(t, w, p, followInterval)
	if told := w.told(); len(told) != 1 || !strings.Contains(told[0], "does not exist") || w.writes() != 0 {
		t.Errorf("without a ConfigMap: told %q", told)
	}
	w.info(t, map[string]string{"other": "kept", "jws-kubeconfig-aaaaaa": "a signature"})
	looks(t, w, p, followInterval)
	w.published(t, first)
	if err := cluster.AddCA(); err != nil {
		t.Fatal(err)
	}
	both := cluster.Info()
	cas(t, path, both)
	looks(t, w, p, followInterval)
	w.published(t, both)
	w.writes()
	looks(t, w, p, followInterval)
	if n := w.writes(); n != 0 || len(w.told()) != 0 {
		t.Errorf("%d writes at rest", n)
	}

	refuses := func(what, want string) {
		t.Helper()
		looks(t, w, p, followInterval)
		looks(t, w, p, followInterval)
		w.published(t, both)
		if told := w.told(); len(told) != 1 || !strings.Contains(told[0], want) || w.value(t, "nodeattest_bootstrap_refused", "") != 1 || w.writes() != 0 {
			t.Errorf("%s: told %q, want %q", what, told, want)
		}
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refuses("an empty file", "the published kubeconfig stays")
	last := &bootstraptoken.ClusterInfo{Server: both.Server, CAs: both.CAs[1:]}
	cas(t, path, last)
	refuses("the new CA alone, too early", "still serves under the CA")
	if err := cluster.UseNewCA(); err != nil {
		t.Fatal(err)
	}
	looks(t, w, p, followInterval)
	w.published(t, last)
	if w.value(t, "nodeattest_bootstrap_refused", "") != 0 || w.value(t, "nodeattest_bootstrap_writes_total", "done") != 3 {
		t.Error("it still counts as refused")
	}
}

// TestPublisherLeavesOthersAlone: another program's document stays, unless the configuration says so.
func TestPublisherLeavesOthersAlone(t *testing.T) {
	w, cluster := newWorld(t, Publisher), bootstraptokentest.New(t, bootstraptokentest.Options{})
	path := filepath.Join(t.TempDir(), "ca.crt")
	elsewhere := &bootstraptoken.ClusterInfo{Server: cluster.URL() + "/path", CAs: cluster.Info().CAs}
	data, err := elsewhere.Data()
	if err != nil {
		t.Fatal(err)
	}
	data["other"], data["jws-kubeconfig-aaaaaa"] = "kept", "a signature"
	w.info(t, data)
	cas(t, path, cluster.Info())
	p := &publisher{client: w, of: &Publication{Server: cluster.URL(), CAFile: path}, reporter: w.reporter}
	looks(t, w, p, followInterval)
	w.published(t, elsewhere)
	if told := w.told(); len(told) != 1 || !strings.Contains(told[0], "another program") {
		t.Errorf("told %q", told)
	}
	p.of.Replace = true
	looks(t, w, p, followInterval)
	w.published(t, cluster.Info())
}

// TestPublisherServers: no CA is dropped under which a server of the configuration still serves.
func TestPublisherServers(t *testing.T) {
	w, cluster, other := newWorld(t, Publisher), bootstraptokentest.New(t, bootstraptokentest.Options{}), bootstraptokentest.New(t, bootstraptokentest.Options{})
	path := filepath.Join(t.TempDir(), "ca.crt")
	p := &publisher{client: w, of: &Publication{Server: cluster.URL(), Servers: []string{other.URL()}, CAFile: path}, reporter: w.reporter}
	w.info(t, map[string]string{"other": "kept", "jws-kubeconfig-aaaaaa": "a signature"})
	both := &bootstraptoken.ClusterInfo{Server: cluster.URL(), CAs: append(cluster.Info().CAs, other.Info().CAs...)}
	cas(t, path, both)
	looks(t, w, p, followInterval)
	cas(t, path, cluster.Info())
	looks(t, w, p, followInterval)
	w.published(t, both)
	if told := w.told(); len(told) != 1 || !strings.Contains(told[0], "server "+other.URL()+" still serves under the CA") {
		t.Errorf("told %q", told)
	}
	p.of.Servers = nil
	looks(t, w, p, followInterval)
	w.published(t, cluster.Info())
}

// TestPublisherConflict: a conflict is tried again, and reported to no person.
func TestPublisherConflict(t *testing.T) {
	w, cluster := newWorld(t, Publisher), bootstraptokentest.New(t, bootstraptokentest.Options{})
	path := filepath.Join(t.TempDir(), "ca.crt")
	cas(t, path, cluster.Info())
	w.info(t, map[string]string{"other": "kept", "jws-kubeconfig-aaaaaa": "a signature"})
	p := &publisher{client: w, of: &Publication{Server: cluster.URL(), CAFile: path}, reporter: w.reporter}
	w.Fault(func(int) (before, after error) { return errConflict, nil })
	looks(t, w, p, conflictPause)
	w.Fault(nil)
	looks(t, w, p, followInterval)
	w.published(t, cluster.Info())
	if w.value(t, "nodeattest_bootstrap_writes_total", "conflict") != 1 || len(w.told()) != 0 {
		t.Error("the conflict")
	}
}
