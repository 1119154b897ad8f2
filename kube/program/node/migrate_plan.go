package node

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/refusal"
)

// kubeadmDropIn is the name of the drop-in that kubeadm's packages install for the kubelet's unit, and
// plainPair the kubelet's own certificate and key, in kubeadm's kubelet.conf.
const (
	kubeadmDropIn = "10-kubeadm.conf"
	plainPair     = "/var/lib/kubelet/pki/kubelet-client-current.pem"
)

// change is a new file.
type change struct {
	path    string
	existed bool
	content []byte
	mode    fs.FileMode
}

// plan checks that the node is as kubeadm made it, and returns its new files: the drop-in first. It
// returns none if the kubelet takes its certificate from a plugin already.
func (m *migration) plan(ctx context.Context) ([]change, error) {
	text, err := readFile(m.kubeletConf, configfile.MaxSize)
	if err != nil {
		return nil, err
	}
	command, err := m.plugin(ctx)
	if err != nil {
		return nil, err
	}
	conf, done, err := newKubeletConf(m.kubeletConf, text, command)
	if done || err != nil {
		return nil, err
	}
	if _, err := readKubeconfig(m.kubeconfig); err != nil {
		return nil, err
	}
	paths := m.kubeletFiles()
	old := ""
	for _, path := range paths {
		if filepath.Base(path) == kubeadmDropIn && old == "" {
			old = path
		}
	}
	if old == "" {
		return nil, checkMigrate.Refuse("no "+kubeadmDropIn,
			"the drop-in of kubeadm's packages, such as /usr/lib/systemd/system/kubelet.service.d/"+kubeadmDropIn)
	}
	if text, err = readFile(old, configfile.MaxSize); err != nil {
		return nil, err
	}
	dropIn, err := newDropIn(old, string(text))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if err := checkFlags(path, path == old); err != nil {
			return nil, err
		}
	}
	if runs, err := m.active(ctx, "kubelet"); err != nil || !runs {
		return nil, &refusal.Error{Check: checkMigrate, Got: "a kubelet that does not run", Want: "a node that works", Err: err}
	}
	return []change{
		{path: m.dropIn, existed: exists(m.dropIn), content: []byte(dropIn), mode: 0o644},
		{path: m.kubeletConf, existed: true, content: conf, mode: 0o600},
	}, nil
}

// kubeletFiles returns the files with the kubelet's flags, without those that others hide.
func (m *migration) kubeletFiles() (paths []string) {
	seen := map[string]bool{}
	for _, pattern := range m.flagFiles {
		found, _ := filepath.Glob(pattern) // the only error is an invalid pattern
		for _, path := range found {
			name := filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path))
			if !seen[name] {
				paths = append(paths, path)
			}
			seen[name] = true
		}
	}
	return paths
}

// newKubeletConf returns the kubelet's kubeconfig with the plugin in the place of the certificate. It
// refuses one that differs from kubeadm's, which is client-go's form of one cluster and one user. done
// says that there is a plugin already.
func newKubeletConf(path string, text []byte, command []string) (conf []byte, done bool, err error) {
	config, err := clientcmd.Load(text)
	if err != nil {
		return nil, false, &refusal.Error{Check: refusal.CheckConfig, Got: "an invalid kubeconfig " + path, Err: err}
	}
	now, cluster := clientcmdapi.NewContext(), clientcmdapi.NewCluster()
	if c := config.Contexts[config.CurrentContext]; c != nil {
		now = c
	}
	if user := config.AuthInfos[now.AuthInfo]; user != nil && user.Exec != nil {
		return nil, true, nil
	}
	if c := config.Clusters[now.Cluster]; c != nil {
		cluster = c
	}
	want := clientcmdapi.NewConfig()
	want.CurrentContext = config.CurrentContext
	want.Contexts[config.CurrentContext] = &clientcmdapi.Context{Cluster: now.Cluster, AuthInfo: now.AuthInfo, Namespace: now.Namespace}
	want.Clusters[now.Cluster] = &clientcmdapi.Cluster{Server: cluster.Server,
		CertificateAuthority: cluster.CertificateAuthority, CertificateAuthorityData: cluster.CertificateAuthorityData}
	want.AuthInfos[now.AuthInfo] = &clientcmdapi.AuthInfo{ClientCertificate: plainPair, ClientKey: plainPair}
	written, err := clientcmd.Write(*want)
	if err == nil {
		err = sameLines(path, text, written)
	}
	if err != nil {
		return nil, false, err
	}
	want.AuthInfos[now.AuthInfo] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1",
		Command: command[0], Args: command[1:], InteractiveMode: clientcmdapi.NeverExecInteractiveMode}}
	conf, err = clientcmd.Write(*want)
	return conf, false, err
}

// sameLines refuses a file at its first line that differs. The line is not repeated: it may be a secret.
// Older releases of client-go write preferences, which are empty.
func sameLines(path string, got, want []byte) error {
	const preferences = "preferences: {}\n"
	n := 0
	var left []string
	for line := range strings.Lines(string(want)) {
		if line != preferences {
			left = append(left, line)
		}
	}
	for line := range strings.Lines(string(got)) {
		if n++; line == preferences {
			continue
		}
		if len(left) == 0 || left[0] != line {
			break
		}
		left = left[1:]
		if len(left) == 0 && n == bytes.Count(got, []byte("\n")) {
			return nil
		}
	}
	wanted := "the end of the file"
	if len(left) != 0 {
		wanted = refusal.Quote(strings.TrimSpace(left[0]))
	}
	return checkMigrate.Refuse(fmt.Sprintf("%s, line %d, which kubeadm does not write", path, n), wanted+" there")
}

// dropInLines are the lines of kubeadm's drop-in, in their order, without comments.
func dropInLines() []*regexp.Regexp {
	return []*regexp.Regexp{
		regexp.MustCompile(`^\[Service\]$`),
		regexp.MustCompile(`^Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet\.conf --kubeconfig=/etc/kubernetes/kubelet\.conf"$`),
		regexp.MustCompile(`^Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config\.yaml"$`),
		regexp.MustCompile(`^EnvironmentFile=-/var/lib/kubelet/kubeadm-flags\.env$`),
		regexp.MustCompile(`^EnvironmentFile=-/etc/(default|sysconfig)/kubelet$`),
		regexp.MustCompile(`^ExecStart=$`),
		regexp.MustCompile(`^ExecStart=/[-/a-z]*/kubelet \$KUBELET_KUBECONFIG_ARGS \$KUBELET_CONFIG_ARGS \$KUBELET_KUBEADM_ARGS \$KUBELET_EXTRA_ARGS$`),
	}
}

// dropInHead is the head of the new drop-in. kube/deploy/node has a whole one.
const dropInHead = `# Written by kubelet-authenticator migrate: it hides kubeadm's own, whose --bootstrap-kubeconfig would have
# the kubelet get a certificate without evidence.
[Unit]
Wants=kubelet-authenticator.service
After=kubelet-authenticator.service

`

// newDropIn returns kubeadm's drop-in with the kubelet's flags for the plugin. It refuses one that differs
// from kubeadm's.
func newDropIn(path, text string) (string, error) {
	want := dropInLines()
	b := new(strings.Builder)
	b.WriteString(dropInHead)
	n, found := 0, 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if isComment(line) {
			continue
		}
		if found == len(want) || !want[found].MatchString(line) {
			return "", differs(path, n, want[min(found, len(want)-1)].String())
		}
		if found == 1 {
			line = `Environment="KUBELET_KUBECONFIG_ARGS=--kubeconfig=/etc/kubernetes/kubelet.conf --rotate-certificates=false"`
		}
		found++
		b.WriteString(line + "\n")
	}
	if found != len(want) {
		return "", differs(path, n+1, want[found].String())
	}
	return b.String(), nil
}

func isComment(line string) bool { return line == "" || line[0] == '#' || line[0] == ';' }

func differs(path string, line int, want string) error {
	return checkMigrate.Refuse(path+", line "+strconv.Itoa(line)+", which kubeadm's packages do not have", "a line of the form "+want)
}

// checkFlags refuses a file with flags that would win over the new drop-in's, or come before them.
func checkFlags(path string, dropIn bool) error {
	if dropIn {
		return nil
	}
	text, err := readFile(path, configfile.MaxSize)
	if err != nil {
		return err
	}
	inFolder := strings.HasSuffix(filepath.Dir(path), ".d")
	n := 0
	for line := range strings.Lines(string(text)) {
		if n++; isComment(strings.TrimSpace(line)) {
			continue
		}
		for _, word := range []string{"KUBELET_KUBECONFIG_ARGS", "--kubeconfig", "--bootstrap-kubeconfig", "--rotate-certificates"} {
			if strings.Contains(line, word) {
				return checkMigrate.Refuse(path+", line "+strconv.Itoa(n)+", with "+word,
					"this setting in "+kubeadmDropIn+" only, as kubeadm's packages have it")
			}
		}
		if inFolder && strings.HasPrefix(strings.TrimSpace(line), "ExecStart") {
			return checkMigrate.Refuse(path+", line "+strconv.Itoa(n)+", with ExecStart",
				"ExecStart in "+kubeadmDropIn+" only, as kubeadm's packages have it")
		}
	}
	return nil
}

// plugin returns how the kubelet starts its plugin: the program of the authenticator's service, with the
// configuration file of this run.
func (m *migration) plugin(ctx context.Context) ([]string, error) {
	for _, unit := range []string{"kubelet", "kubelet-authenticator"} {
		if state, err := m.systemctl(ctx, "show", "-P", "LoadState", unit); err != nil || state != "loaded" {
			got := "unit " + unit + ", " + refusal.OrNothing(state)
			return nil, &refusal.Error{Check: checkMigrate, Got: got, Want: "loaded: install it first", Err: err}
		}
	}
	start, err := m.systemctl(ctx, "show", "-P", "ExecStart", "kubelet-authenticator")
	found := regexp.MustCompile(`^\{ path=(/[^ ;]+) ; `).FindStringSubmatch(start)
	if err != nil || found == nil {
		return nil, &refusal.Error{Check: checkMigrate, Got: "unit kubelet-authenticator with ExecStart " + refusal.Quote(start), Want: "one program", Err: err}
	}
	if m.configFile == defaultConfig {
		return []string{found[1], "credential"}, nil
	}
	configFile, err := filepath.Abs(m.configFile)
	return []string{found[1], "--config", configFile, "credential"}, err
}
