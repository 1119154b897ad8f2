package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// deployed is the folder of the shipped files.
var deployed = filepath.Join("..", "..", "deploy", "node")

func read(t testing.TB, name string) string {
	t.Helper()
	text := testkit.Must(os.ReadFile(filepath.Join(deployed, name)))
	return string(text)
}

// TestExample reads the shipped file, in which every field is at its default but the
// node's name.
func TestExample(t *testing.T) {
	text := read(t, "kubelet-authenticator.yaml")
	for _, name := range []string{"as it is", "with discovery", "with a serving certificate"} {
		if name == "with discovery" {
			text := regexp.MustCompile("(?m)^# (discovery:|  (?:addresses|interval|writeCA):)").ReplaceAllString(text, "$1")
			f := testkit.Must(testkit.Must(parseSettings([]byte(text))).follower())
			if f == nil || len(f.addresses) != 0 || f.interval != defaultInterval || f.writeCA {
				t.Errorf("the example of discovery is not the default: %+v", f)
			}
			continue
		}
		if name != "as it is" {
			text = strings.NewReplacer("# serving:", "serving:", "#   signerName", "  signerName", "#   dnsNames", "  dnsNames", "#   ipAddresses", "  ipAddresses").Replace(text)
		}
		s := testkit.Must(parseSettings([]byte(text)))
		c := testkit.Must(s.config(nil))
		c.Dir = filepath.Join(mounttest.Disk(t), "state")
		if _, err := authenticator.New(c); err != nil || c.NodeName != "node-1" || (c.Serving != nil) != (name != "as it is") {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
		bare := testkit.Must(parseSettings([]byte("apiVersion: " + configfile.APIVersion + "\nkind: " + settingsKind + "\nevidence: {tpm: {}}\n")))
		d := testkit.Must(bare.config(nil))
		full, def := c.Kind.(*authenticator.TPM), d.Kind.(*authenticator.TPM)
		if full.Path != def.Path || full.PersistentEK != def.PersistentEK || d.Dir != "/var/lib/kubelet-authenticator" || !reflect.DeepEqual(c.Kubelet, d.Kubelet) {
			t.Errorf("the example is not the default: %+v, %+v", full, def)
		}
	}
}

// reached is the result of a file.
type reached struct {
	authenticator.Config
	*authenticator.TPM
}

// TestFields has each field of the file reach the program's configuration.
func TestFields(t *testing.T) {
	dir := t.TempDir()
	ca := testkit.Must(tpmsim.NewCA(tpmsim.CAOptions{}))
	bundle, password, events := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "password"), filepath.Join(dir, "log")
	for path, text := range map[string][]byte{bundle: pemOf("CERTIFICATE", ca.Root().Raw), password: []byte("secret\n"), events: []byte("a log")} {
		testkit.MustDo(os.WriteFile(path, text, 0o600))
	}
	serving := strings.NewReplacer("# serving:", "serving:", "#   signerName", "  signerName", "#   dnsNames", "  dnsNames", "#   ipAddresses", "  ipAddresses")
	text := serving.Replace(read(t, "kubelet-authenticator.yaml"))
	for _, row := range []struct {
		old, with string
		got       func(r reached) any
		want      any
	}{
		{"nodeName: node-1", "nodeName: node-2", func(r reached) any { return r.NodeName }, "node-2"},
		{`clusterID: ""`, "clusterID: c", func(r reached) any { return r.ClusterID }, "c"},
		{"signerName: kubernetes.io/kube-apiserver-client-kubelet", "signerName: a/b", func(r reached) any { return r.SignerName }, "a/b"},
		{"lifetime: 24h", "lifetime: 1h", func(r reached) any { return r.Lifetime }, time.Hour},
		{`providerID: ""`, "providerID: rack://1", func(r reached) any {
			if r.ProviderID == nil {
				return nil
			}
			id, err := r.ProviderID(t.Context())
			return id + fmt.Sprint(err)
		}, "rack://1<nil>"},
		{`recoverySigner: ""`, "recoverySigner: a/b", func(r reached) any { return r.RecoverySigner }, "a/b"},
		{"kubeconfig: /etc/kubernetes/kubelet-authenticator.conf", "kubeconfig: " + dir + "/none", func(r reached) any {
			_, err := r.API()
			return strings.Contains(fmt.Sprint(err), dir+"/none")
		}, true},
		{"signerName: cluster.x-k8s.io/kubelet-serving-tpm", "signerName: a/b", func(r reached) any { return r.Serving.SignerName }, "a/b"},
		{"dnsNames: [node-1]", "dnsNames: [a]", func(r reached) any { return r.Serving.DNSNames }, []string{"a"}},
		{"ipAddresses: [192.0.2.1]", "ipAddresses: [192.0.2.2]", func(r reached) any { return r.Serving.IPAddresses }, []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, 2})}},
		{"device: /dev/tpmrm0", "device: /dev/tpm7", func(r reached) any { return r.Path }, "/dev/tpm7"},
		{"ek: rsa-2048", "ek: p-256", func(r reached) any { return *r.Options.EK }, tpm.EKP256()},
		{`persistentEK: "0x81010001"`, `persistentEK: "0x81010007"`, func(r reached) any { return r.PersistentEK }, tpm2.TPMHandle(0x81010007)},
		{`persistentEK: "0x81010001"`, "persistentEK: none", func(r reached) any { return r.PersistentEK }, tpm2.TPMHandle(0)},
		{"ak: p-256", "ak: p-384", func(r reached) any { return r.AK.Template }, tpm.AKTemplateECDSAP384()},
		{`intermediates: ""`, "intermediates: " + bundle, func(r reached) any { return r.Options.Intermediates }, [][]byte{ca.Root().Raw}},
		{"ekChainFromNV: false", "ekChainFromNV: true", func(r reached) any { return r.Options.EKChainFromNV }, true},
		{`endorsementPasswordFile: ""`, "endorsementPasswordFile: " + password, func(r reached) any { return string(r.Options.EndorsementPassword.Reveal()) }, "secret"},
		{"quote: false", "quote: true", func(r reached) any { return r.Options.Quote }, tpm.DefaultPCRs()},
		{"quote: false\n    eventLog: \"\"", "quote: true\n    eventLog: " + events, func(r reached) any {
			if r.Options.EventLog == nil {
				return nil
			}
			text, err := r.Options.EventLog(t.Context())
			return fmt.Sprint(string(text), err)
		}, "a log<nil>"},
		{"config: /var/lib/kubelet/config.yaml", `config: ""`, func(r reached) any { return r.Kubelet.ConfigFile }, ""},
		{`configDir: ""`, "configDir: /a", func(r reached) any { return r.Kubelet.ConfigDir }, "/a"},
		{"# flagFiles: []", "flagFiles: [/a]", func(r reached) any { return r.Kubelet.FlagFiles }, []string{"/a"}},
		{"processes: true", "processes: false", func(r reached) any { return r.Kubelet.Processes }, false},
	} {
		t.Run(row.with, func(t *testing.T) {
			var found [2]any
			for n, text := range []string{text, strings.Replace(text, row.old, row.with, 1)} {
				s := testkit.Must(parseSettings([]byte(text)))
				c := testkit.Must(s.config(nil))
				found[n] = row.got(reached{c, c.Kind.(*authenticator.TPM)})
			}
			if !reflect.DeepEqual(found[1], row.want) || reflect.DeepEqual(found[0], row.want) {
				t.Errorf("got %v, and without it %v, want %v", found[1], found[0], row.want)
			}
		})
	}
}

// TestFolders: the keys may be elsewhere than what outlasts them, and are in memory for a node that
// comes back without them.
func TestFolders(t *testing.T) {
	const recovery = "\nrecoverySigner: cluster.x-k8s.io/kubelet-attestation-recovery-tpm"
	for more, want := range map[string][2]string{
		"":             {"/var/lib/kubelet-authenticator", ""},
		"\nkeyDir: /b": {"/var/lib/kubelet-authenticator", "/b"},
		recovery:       {"/var/lib/kubelet-authenticator", "/run/kubelet-authenticator"},
		recovery + "\nkeyDir: /var/lib/kubelet-authenticator": {"/var/lib/kubelet-authenticator", "/var/lib/kubelet-authenticator"},
		recovery + "\nstateDir: /a\nkeyDir: /b":               {"/a", "/b"},
	} {
		s := testkit.Must(parseSettings([]byte("apiVersion: " + configfile.APIVersion + "\nkind: " + settingsKind + "\nnodeName: node-1\nevidence: {tpm: {}}" + more + "\n")))
		if c, err := s.config(nil); err != nil || c.Dir != want[0] || c.KeyDir != want[1] {
			t.Errorf("%q: got %q and %q, %v", more, c.Dir, c.KeyDir, err)
		}
	}
}

// A maker's key takes no EK, and may have a password.
func TestSettingsOfAMakersKey(t *testing.T) {
	const path = "/etc/kubernetes/ak-password"
	text := strings.NewReplacer("ek: rsa-2048", `ek: ""`, `"0x81010001"`, `""`, "ak: p-256", "ak: oem",
		`akPasswordFile: ""`, "akPasswordFile: "+path).Replace(read(t, "kubelet-authenticator.yaml"))
	s := testkit.Must(parseSettings([]byte(text)))
	c := testkit.Must(s.config(nil))
	k := c.Kind.(*authenticator.TPM)
	if !k.AK.OEM || k.Options.EK != nil || k.AKPasswordFile != path {
		t.Errorf("%+v", k)
	}
}

// Azure's key has a certificate, and neither an EK nor a password.
func TestSettingsOfAzuresKey(t *testing.T) {
	text := strings.NewReplacer("ek: rsa-2048", `ek: ""`, `"0x81010001"`, `""`, "ak: p-256", "ak: azure-rsa").Replace(read(t, "kubelet-authenticator.yaml"))
	for name, row := range map[string]struct {
		text string
		want error
	}{
		"as it is":   {text, nil},
		"a password": {strings.Replace(text, `akPasswordFile: ""`, "akPasswordFile: /etc/kubernetes/ak-password", 1), refusal.CheckConfig},
	} {
		t.Run(name, func(t *testing.T) {
			s := testkit.Must(parseSettings([]byte(row.text)))
			c, err := s.config(nil)
			if !errors.Is(err, row.want) {
				t.Fatalf("got %v, want %v", err, row.want)
			}
			if err != nil {
				return
			}
			if k := c.Kind.(*authenticator.TPM); k.AK != tpm.AzureRSA() || k.Options.EK != nil || k.PersistentEK != 0 {
				t.Errorf("%+v", k)
			}
		})
	}
}

func TestSettingsRefused(t *testing.T) {
	good := read(t, "kubelet-authenticator.yaml")
	for name, change := range map[string][2]string{
		"another version":  {"v1alpha1", "v1"},
		"the CRDs' group":  {"config.nodeattest", "nodeattest"},
		"another provider": {"kind: KubeletAuth", "kind: Auth"},
		"unknown":          {"nodeName:", "nodename2:"},
		"twice":            {"nodeName: node-1", "nodeName: node-1\nnodeName: node-2"},
		"in capitals":      {"nodeName: node-1", "NODENAME: node-1"},
		"twice by case":    {"nodeName: node-1", "nodeName: node-1\nNodeName: node-2"},
		"a number":         {"nodeName: node-1", "nodeName: 0010"},
		"a truth value":    {"nodeName: node-1", "nodeName: no"},
		"no duration":      {"lifetime: 24h", "lifetime: long"},
		"no evidence":      {"  tpm:\n", "  other:\n"},
		"a format":         {"minimumVersion: 0", "minimumVersion: tpm/v1"},
		"ek":               {"ek: rsa-2048", "ek: rsa-1024"},
		"ak":               {"ak: p-256", "ak: p-257"},
		"ek and AK's":      {"ak: p-256", "ak: gce-rsa"},
		"ek and Azure's":   {"ak: p-256", "ak: azure-rsa"},
		"ek and maker's":   {"ak: p-256", "ak: oem"},
		"a made AK's":      {`akPasswordFile: ""`, `akPasswordFile: /none`},
		"handle":           {`"0x81010001"`, `"0x80010001"`},
		"handle's form":    {`"0x81010001"`, `"81010001"`},
		"no file":          {`intermediates: ""`, `intermediates: /nonexistent`},
		"no password":      {`endorsementPasswordFile: ""`, `endorsementPasswordFile: /nonexistent`},
		"log alone":        {`eventLog: ""`, `eventLog: /x`},
		"two kinds":        {"  tpm:\n", "  gce: {}\n  tpm:\n"},
		"a kind of none":   {"  tpm:\n", "  gce:\n  other:\n"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(good, change[0], change[1], 1)
			if text == good {
				t.Fatalf("%s: nothing changed", name)
			}
			s, err := parseSettings([]byte(text))
			if err == nil {
				_, err = s.config(nil)
			}
			if err == nil || !errors.Is(err, refusal.CheckConfig) && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: got %v", name, err)
			}
		})
	}
	for _, more := range []string{"--- # more\n", "...\n", "--- {nodeName: node-2}\n"} {
		if _, err := parseSettings([]byte(good + more + "nodeName: node-2\n")); !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%q begins a second document: got %v", more, err)
		}
	}
	if _, err := parseSettings(make([]byte, configfile.MaxSize+1)); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("too large: got %v", err)
	}
}

// TestKindOfOthers adds a kind of evidence to the program: its section is read as
// strictly as the others.
func TestKindOfOthers(t *testing.T) {
	rack := Evidence{Name: "rack", Open: func(decode func(into any) error) (authenticator.Evidence, error) {
		var section struct {
			Slot string `json:"slot"`
		}
		if err := decode(&section); err != nil {
			return nil, err
		}
		return authenticator.EvidenceOf("rack", func(context.Context) (attest.Prover, error) { return nil, errors.New("slot " + section.Slot) }), nil
	}}
	renamed, empty := rack, Evidence{Name: "rack"}
	renamed.Name = "shelf"
	for name, row := range map[string]struct {
		text  string
		kinds []Evidence
		want  string // "": it is known
	}{
		"rack":                       {"{rack: {slot: a}}", []Evidence{rack}, ""},
		"one in the box":             {"{gce: {}}", []Evidence{rack}, ""},
		"a program without the kind": {"{rack: {slot: a}}", nil, "rack"},
		"an unknown field":           {"{rack: {row: a}}", []Evidence{rack}, "row"},
		"an unknown field of gce":    {"{gce: {metadataurl: a}}", []Evidence{rack}, "metadataurl"},
		"a section of nothing":       {"{rack: }", []Evidence{rack}, "an object"},
		"with another":               {"{rack: {slot: a}, gce: {}}", []Evidence{rack}, "gce and rack"},
		"with an unknown one":        {"{rack: {slot: a}, row: {}}", []Evidence{rack}, "rack and row"},
		"twice":                      {"{rack: {slot: a}}", []Evidence{rack, rack}, "a unique name"},
		"a kind of another name":     {"{shelf: {slot: a}}", []Evidence{renamed}, "another provider"},
		"nothing to open":            {"{rack: {slot: a}}", []Evidence{empty}, "Open"},
	} {
		t.Run(name, func(t *testing.T) {
			s := testkit.Must(parseSettings([]byte("apiVersion: " + configfile.APIVersion + "\nkind: " + settingsKind + "\nminimumVersion: 2\nevidence: " + row.text + "\n")))
			c, err := s.config(row.kinds)
			if (err == nil) != (row.want == "") || err != nil && (!errors.Is(err, refusal.CheckConfig) || !strings.Contains(err.Error(), row.want)) {
				t.Fatalf("got %v, want an error with %q", err, row.want)
			}
			if err != nil || c.Kind.Provider() != "rack" {
				return
			}
			if c.MinimumVersion != 2 {
				t.Errorf("minimumVersion is %d", c.MinimumVersion)
			}
			if _, err := c.Kind.Open(t.Context()); err == nil || err.Error() != "slot a" {
				t.Errorf("it was opened with %v", err)
			}
		})
	}
	var stderr bytes.Buffer
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: "+configfile.APIVersion+"\nkind: "+settingsKind+"\nnodeName: node-1\nevidence: {rack: {slot: a}}\n"+
		"stateDir: "+filepath.Join(t.TempDir(), "state")+"\nkubelet: {processes: false, flagFiles: [], config: ''}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, kinds := range map[string][]Evidence{errNotUsable.Error(): {rack}, "one of tpm, gce, azure, nitro, ec2": nil} {
		if status := Main([]string{"--config", path, "status"}, new(bytes.Buffer), &stderr, kinds...); status != 1 || !strings.Contains(stderr.String(), want) {
			t.Errorf("status %d, want an error with %q: %s", status, want, &stderr)
		}
	}
	if log.Writer() != io.Discard {
		t.Error("what net/http says of a server is logged")
	}
}

// TestKinds reads a file of each kind.
func TestKinds(t *testing.T) {
	head := "apiVersion: " + configfile.APIVersion + "\nkind: " + settingsKind + "\nnodeName: node-1\n"
	for name, row := range map[string]struct{ text, provider string }{
		"tpm":              {"evidence: {tpm: {}}", "tpm"},
		"gce":              {"evidence: {gce: {}}", "gce"},
		"gce elsewhere":    {"evidence: {gce: {metadataURL: 'http://127.0.0.1:1', timeout: 1s}}", "gce"},
		"azure":            {"evidence: {azure: {}}", "azure"},
		"ec2":              {"evidence: {ec2: {metadataURL: 'http://[fd00:ec2::254]', timeout: 5s}}", "ec2"},
		"nitro":            {"evidence: {nitro: {tool: /usr/bin/nitro-tpm-attest}}", "nitro"},
		"a URL of none":    {"evidence: {gce: {metadataURL: metadata}}", ""},
		"a negative time":  {"evidence: {azure: {timeout: -1s}}", ""},
		"two":              {"evidence: {gce: {}, azure: {}}", ""},
		"none":             {"evidence: {}", ""},
		"null":             {"evidence: {gce: }", ""},
		"recovery":         {"evidence: {tpm: {}}\nrecoverySigner: cluster.x-k8s.io/kubelet-attestation-recovery-tpm", "tpm"},
		"recovery without": {"evidence: {gce: {}}\nrecoverySigner: cluster.x-k8s.io/kubelet-attestation-recovery-tpm", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := testkit.Must(parseSettings([]byte(head + row.text + "\n")))
			c, err := s.config(nil)
			switch {
			case row.provider == "" && !errors.Is(err, refusal.CheckConfig):
				t.Errorf("got %v, want a refusal", err)
			case row.provider != "" && (err != nil || c.Kind.Provider() != row.provider):
				t.Errorf("got %+v, %v, want %s", c.Kind, err, row.provider)
			}
		})
	}
}

func FuzzSettings(f *testing.F) {
	testkit.BeginFuzz(f)
	f.Add([]byte(read(f, "kubelet-authenticator.yaml")))
	f.Add([]byte(`{"apiVersion":"config.nodeattest.github.io/v1alpha1","kind":"KubeletAuthenticatorConfiguration","evidence":{"tpm":{"ak":"gce-ecc"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := parseSettings(text); (s == nil) == (err == nil) || err != nil && !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("got %+v, %v", s, err)
		}
	})
}

// TestKubeconfig reads the kubelet's kubeconfig as the kubelet does.
func TestKubeconfig(t *testing.T) {
	text := strings.Replace(read(t, "kubelet.conf"), "certificate-authority: /etc/kubernetes/pki/ca.crt", "insecure-skip-tls-verify: false", 1)
	c, err := clientcmd.RESTConfigFromKubeConfig([]byte(text))
	if err != nil || c.ExecProvider == nil || c.ExecProvider.Args[0] != "credential" || c.ExecProvider.APIVersion != "client.authentication.k8s.io/v1" {
		t.Errorf("got %+v, %v", c, err)
	}
}

// TestUnits has systemd read the daemon's unit.
func TestUnits(t *testing.T) {
	unit := read(t, "kubelet-authenticator.service")
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze: apt-get install systemd")
	}
	self := testkit.Must(os.Executable())
	const installed = "/usr/local/bin/kubelet-authenticator"
	if !strings.Contains(unit, "ExecStart="+installed+" --config "+defaultConfig+" daemon") {
		t.Error("it starts something else")
	}
	path := filepath.Join(t.TempDir(), "kubelet-authenticator.service")
	testkit.MustDo(os.WriteFile(path, []byte(strings.Replace(unit, installed, self, 1)), 0o600))
	out, err := exec.Command(analyze, "verify", "--man=no", "--recursive-errors=no", path).CombinedOutput()
	if err != nil || len(bytes.TrimSpace(out)) != 0 {
		t.Errorf("systemd-analyze: %v: %s", err, out)
	}
	for _, line := range []string{"MemoryMax=128M", "MemorySwapMax=0", "LimitCORE=0"} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("no %s", line)
		}
	}
	if out, err := exec.Command(analyze, "security", "--offline=yes", "--no-pager", "--threshold=20", path).CombinedOutput(); err != nil { // in tenths
		t.Errorf("systemd-analyze: %v: %s", err, out)
	}
}

// TestErrorsAreEscaped: nothing in an error acts on a terminal.
func TestErrorsAreEscaped(t *testing.T) {
	var out, errs bytes.Buffer
	if status := Main([]string{"roots", "check", "\u009b31m\u202e", "absent"}, &out, &errs); status != 1 {
		t.Errorf("status %d", status)
	}
	if text := errs.String(); strings.ContainsAny(text, "\u009b\u202e") || !strings.Contains(text, `\u009b31m\u202e`) || !strings.Contains(text, "absent") {
		t.Errorf("got %q", text)
	}
}

func TestCommands(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := "apiVersion: " + configfile.APIVersion + "\nkind: " + settingsKind + "\nnodeName: node-1\nstateDir: " + filepath.Join(dir, "state") + "\nkubeconfig: " + kubeconfig +
		"\nevidence: {tpm: {device: " + filepath.Join(dir, "none") + "}}\nkubelet: {processes: false, flagFiles: [], config: " + filepath.Join(dir, "kubelet.yaml") + "}\n"
	testkit.MustDo(os.WriteFile(config, []byte(text), 0o600))
	try := func(args ...string) (string, string, error) {
		var out, errs bytes.Buffer
		err := run(t.Context(), args, &out, &errs, nil)
		return out.String(), errs.String(), err
	}
	for name, c := range map[string]struct {
		args []string
		want error
	}{
		"no command":      {[]string{"-config", config}, errCommandLine},
		"another command": {[]string{"-config", config, "join"}, errCommandLine},
		"another flag":    {[]string{"-verbose"}, errCommandLine},
		"no file":         {[]string{"-config", filepath.Join(dir, "absent"), "status"}, os.ErrNotExist},
		"no kubeconfig":   {[]string{"-config", config, "rotate"}, os.ErrNotExist},
		"another form":    {[]string{"-config", config, "status", "-o", "xml"}, errCommandLine},
	} {
		t.Run(name, func(t *testing.T) {
			if out, _, err := try(c.args...); !errors.Is(err, c.want) || out != "" {
				t.Errorf("%s: got %q, %v", name, out, err)
			}
		})
	}
	out, _, err := try("-config", config, "status")
	if !errors.Is(err, errNotUsable) || !strings.Contains(out, "not obtained yet") || !strings.Contains(out, "Problem") || !strings.Contains(out, kubeconfig) {
		t.Errorf("status: %v\n%s", err, out)
	}
	out, _, err = try("-config", config, "status", "-o", "json")
	var s authenticator.Status
	if !errors.Is(err, errNotUsable) || json.Unmarshal([]byte(out), &s) != nil || s.NodeName != "node-1" || s.Certificates[0].Failures != 1 {
		t.Errorf("status: %v\n%s", err, out)
	}
	t.Setenv(execInfo, `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1"}`)
	for _, args := range [][]string{{"-config", config}, {"-config", config, "credential"}} {
		if out, _, err := try(args...); !errors.Is(err, refusal.Check("exec-info")) || out != "" {
			t.Errorf("another version: got %q, %v", out, err)
		}
	}
}
