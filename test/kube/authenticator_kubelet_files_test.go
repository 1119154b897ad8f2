package kube

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// The effects of a kubelet's files, or of its start.
const (
	rotates = "rotates"
	serves  = "serves"
	both    = rotates + " " + serves
	refused = "refused"
)

// kubeletTree is the configuration that a kubelet is started with.
type kubeletTree struct {
	// files are config.yaml, for --config, and the files below d, for --config-dir, with "->" before
	// the target of a link. d/ is a folder without files.
	files map[string]string
	flags []string
	dir   string // that of --config-dir; "" for d
	// otherwise says why the authenticator's finding differs from the kubelet.
	otherwise string
}

// kubeletTrees are named after their cases.
func kubeletTrees() map[string]kubeletTree {
	type files = map[string]string
	const (
		version   = "apiVersion: kubelet.config.k8s.io/v1beta1\n"
		kind      = "kind: KubeletConfiguration\n"
		head      = version + kind
		on, off   = head + "rotateCertificates: true\n", head + "rotateCertificates: false\n"
		serve     = head + "serverTLSBootstrap: true\n"
		headJSON  = `{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", `
		onJSON    = headJSON + `"rotateCertificates": true}`
		offJSON   = headJSON + `"rotateCertificates": false}`
		absent    = "nothing is no configuration: the files may come later"
		elsewhere = "other fields are not looked at"
	)
	main := func(text string) kubeletTree { return kubeletTree{files: files{"config.yaml": text, "d/": ""}} }
	dropIns := func(f files) kubeletTree {
		if f["config.yaml"] == "" {
			f["config.yaml"] = off
		}
		return kubeletTree{files: f}
	}
	flags := func(text string, flags ...string) kubeletTree {
		return kubeletTree{files: files{"config.yaml": text, "d/": ""}, flags: flags}
	}
	return map[string]kubeletTree{
		// The main file.
		"off":                            main(off),
		"on":                             main(on),
		"serving":                        main(serve),
		"both":                           main(on + "serverTLSBootstrap: true\n"),
		"twice":                          main(on + "rotateCertificates: false\n"),
		"in another spelling":            main(head + "RotateCertificates: true\n"),
		"off in another spelling":        main(on + "rotatecertificates: false\n"),
		"null":                           main(head + "rotateCertificates: null\n"),
		"yes":                            main(head + "rotateCertificates: yes\n"),
		"a string":                       main(head + "rotateCertificates: \"true\"\n"),
		"a number":                       main(head + "rotateCertificates: 1\n"),
		"of a tag":                       main(head + "rotateCertificates: !!bool \"true\"\n"),
		"by an alias":                    main(head + "enableServer: &x true\nrotateCertificates: *x\n"),
		"by a merge key":                 main(head + "x: &x {rotateCertificates: true}\n<<: *x\n"),
		"an unknown field":               main(on + "rotateEverything: false\n"),
		"another field of a wrong type":  {files: files{"config.yaml": on + "maxPods: many\n", "d/": ""}, otherwise: elsewhere},
		"CRLF":                           main(strings.ReplaceAll(on, "\n", "\r\n")),
		"a byte order mark":              main("\ufeff" + on),
		"UTF-16":                         main("\xff\xfe" + strings.Join(strings.Split(on, ""), "\x00") + "\x00"),
		"a tab":                          main(head + "authentication:\n\tanonymous:\n\t\tenabled: false\n"),
		"empty":                          main(""),
		"a link to nothing":              {files: files{"config.yaml": "->none", "d/": ""}, otherwise: absent},
		"a link to the null device":      main("->" + os.DevNull),
		"blank":                          main("\n\n"),
		"comments only":                  main("# rotateCertificates: true\n"),
		"a list":                         main("- " + kind),
		"dashes first":                   main("---\n" + on),
		"two documents":                  main(on + "---\n" + off),
		"two documents, the first empty": main("---\n---\n" + on),
		"an invalid second document":     main(on + "---\n{\n"),
		"dots at the end":                main(on + "...\n"),
		"no kind":                        main(version + "rotateCertificates: true\n"),
		"no version":                     main(kind + "rotateCertificates: true\n"),
		"a kind in another spelling":     main(version + "Kind: KubeletConfiguration\nrotateCertificates: true\n"),
		"another kind":                   main(version + "kind: CredentialProviderConfig\nproviders: []\n"),
		"kubeadm's kind":                 main("apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"),
		"another version":                main("apiVersion: kubelet.config.k8s.io/v1\n" + kind),
		"the internal version":           main("apiVersion: kubelet.config.k8s.io/__internal\n" + kind + "RotateCertificates: true\n"),
		"JSON":                           main(onJSON),
		"JSON with tabs":                 main("{\n\t\"apiVersion\": \"kubelet.config.k8s.io/v1beta1\",\n\t\"kind\": \"KubeletConfiguration\",\n\t\"rotateCertificates\": true\n}\n"),
		"JSON, twice":                    main(headJSON + `"rotateCertificates": true, "rotateCertificates": false}`),
		"JSON after blank lines":         main("\n \n" + onJSON),
		"JSON after a byte order mark":   main("\ufeff" + onJSON),
		"JSON after a comment":           main("# JSON\n" + onJSON),
		"JSON with more behind it":       main(onJSON + "\n" + offJSON),
		"JSON with a comma at the end":   main(headJSON + `"rotateCertificates": true,}`),
		"braces that are no JSON":        main("{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, rotateCertificates: true}"),
		"JSON in YAML's documents":       main("---\n" + onJSON + "\n---\n" + offJSON),
		"no main file":                   {files: files{"d/": ""}, otherwise: absent},

		// Drop-ins, off in the main file unless it stands there.
		"on in a drop-in":                  dropIns(files{"d/90.conf": on}),
		"off in a drop-in":                 dropIns(files{"config.yaml": on, "d/90.conf": off}),
		"one field in each":                dropIns(files{"d/10.conf": on, "d/20.conf": serve, "d/30.conf": head + "maxPods: 9\n"}),
		"by the order of strings":          dropIns(files{"d/10.conf": on, "d/9.conf": off}),
		"capitals come first":              dropIns(files{"d/Z.conf": on, "d/a.conf": off}),
		"off in a folder behind":           dropIns(files{"d/10.conf": on, "d/50-vendor/10.conf": off}),
		"on in a folder behind":            dropIns(files{"d/90.conf": off, "d/95-vendor/x/10.conf": on}),
		"a folder before its own name":     dropIns(files{"d/50/x.conf": on, "d/50.conf": off}),
		"in a folder of such a name":       dropIns(files{"d/x.conf/10.conf": on}),
		"in a hidden folder":               dropIns(files{"d/.git/10.conf": on}),
		"a hidden file":                    dropIns(files{"d/.90.conf": on}),
		"a name that is the suffix":        dropIns(files{"d/.conf": on}),
		"no drop-in":                       dropIns(files{"d/90.yaml": on, "d/90.json": onJSON}),
		"leftovers of editors":             dropIns(files{"d/90.conf.bak": on, "d/90.conf~": on, "d/#90.conf#": on, "d/90.conf.rpmsave": on}),
		"the suffix in capitals":           dropIns(files{"d/90.CONF": on, "d/90.Conf": on}),
		"removed":                          dropIns(files{"config.yaml": on, "d/90.conf": head + "rotateCertificates: null\n"}),
		"removed by nothing":               dropIns(files{"config.yaml": on, "d/90.conf": head + "rotateCertificates:\n"}),
		"removed in another spelling":      dropIns(files{"config.yaml": on, "d/90.conf": head + "RotateCertificates: null\n"}),
		"removed, and on again":            dropIns(files{"config.yaml": on, "d/90.conf": head + "rotateCertificates: null\n", "d/91.conf": on}),
		"on in a drop-in's spelling":       dropIns(files{"d/90.conf": head + "RotateCertificates: true\n"}),
		"off in a drop-in's spelling":      dropIns(files{"config.yaml": on, "d/90.conf": head + "rotatecertificates: false\n"}),
		"off in capitals, which is before": dropIns(files{"config.yaml": on, "d/90.conf": head + "ROTATECERTIFICATES: false\n"}),
		"in a spelling of another S":       dropIns(files{"d/90.conf": head + "rotateCertificate\u017f: true\n"}),
		"twice in a drop-in":               dropIns(files{"d/90.conf": on + "rotateCertificates: false\n"}),
		"another field twice in a drop-in": dropIns(files{"d/90.conf": on + "maxPods: 8\nmaxPods: 9\n"}),
		"an unknown field in a drop-in":    dropIns(files{"d/90.conf": on + "rotateEverything: false\n"}),
		"a wrong type, mended":             dropIns(files{"d/10.conf": head + "rotateCertificates: \"false\"\n", "d/20.conf": on}),
		"a wrong type, removed":            dropIns(files{"config.yaml": on, "d/10.conf": head + "rotateCertificates: [true]\n", "d/20.conf": head + "rotateCertificates: null\n"}),
		"a wrong type at the end":          dropIns(files{"d/10.conf": on, "d/20.conf": head + "rotateCertificates: \"false\"\n"}),
		"a map over a value":               dropIns(files{"d/10.conf": head + "rotateCertificates: {x: null}\n"}),
		"maps and lists merged":            dropIns(files{"config.yaml": serve + "featureGates: {RotateKubeletServerCertificate: false}\nclusterDNS: [10.0.0.1]\n", "d/90.conf": on + "featureGates: {RotateKubeletServerCertificate: true}\nclusterDNS: [10.0.0.2, 10.0.0.3]\n"}),
		"a gate that is off":               {files: files{"config.yaml": serve, "d/90.conf": head + "featureGates: {RotateKubeletServerCertificate: false}\n"}, otherwise: elsewhere},
		"a gate that is off, and no use":   dropIns(files{"d/90.conf": on + "featureGates: {RotateKubeletServerCertificate: false}\n"}),
		"a JSON drop-in":                   dropIns(files{"d/90.conf": onJSON}),
		"a JSON drop-in with tabs":         dropIns(files{"d/90.conf": "{\n\t\"kind\": \"KubeletConfiguration\",\n\t\"apiVersion\": \"kubelet.config.k8s.io/v1beta1\",\n\t\"rotateCertificates\": true\n}\n"}),
		"a JSON drop-in, twice":            dropIns(files{"d/90.conf": headJSON + `"rotateCertificates": true, "rotateCertificates": true}`}),
		"a drop-in without a kind":         dropIns(files{"d/90.conf": "rotateCertificates: true\n"}),
		"a drop-in without a version":      dropIns(files{"d/90.conf": kind + "rotateCertificates: true\n"}),
		"a drop-in's kind in capitals":     dropIns(files{"d/90.conf": version + "Kind: KubeletConfiguration\nrotateCertificates: true\n"}),
		"a drop-in with two kinds":         dropIns(files{"d/90.conf": on + "KIND: 5\n"}),
		"a drop-in of another kind":        dropIns(files{"d/90.conf": version + "kind: CredentialProviderConfig\n"}),
		"a drop-in of another version":     dropIns(files{"d/90.conf": "apiVersion: kubelet.config.k8s.io/v1alpha1\n" + kind}),
		"an empty drop-in":                 dropIns(files{"d/90.conf": ""}),
		"a blank drop-in":                  dropIns(files{"d/90.conf": "\n"}),
		"a drop-in with comments only":     dropIns(files{"d/90.conf": "# rotateCertificates: true\n"}),
		"a drop-in that is a list":         dropIns(files{"d/90.conf": "- rotateCertificates: true\n"}),
		"a drop-in of two documents":       dropIns(files{"d/90.conf": on + "---\n" + off}),
		"a drop-in with CRLF":              dropIns(files{"d/90.conf": strings.ReplaceAll(on, "\n", "\r\n")}),
		"a drop-in with a byte order mark": dropIns(files{"d/90.conf": "\ufeff" + on}),
		"by a link":                        dropIns(files{"real": on, "d/90.conf": "->real"}),
		"by a link to a link":              dropIns(files{"real": on, "link": "->real", "d/90.conf": "->link"}),
		"a drop-in that links to nothing":  dropIns(files{"d/90.conf": "->none"}),
		"a drop-in to the null device":     dropIns(files{"d/90.conf": "->" + os.DevNull}),
		"a link to a folder":               dropIns(files{"real/90.conf": on, "d/90": "->real"}),
		"a link to a folder, with suffix":  dropIns(files{"real/90.conf": on, "d/90.conf": "->real"}),
		"no suffix, a link with one":       dropIns(files{"real.conf": on, "d/90": "->real.conf"}),
		"in a folder that is a link":       dropIns(files{"real/90.conf": on, "d": "->real"}),
		"such a folder with a slash":       {files: files{"config.yaml": off, "real/90.conf": on, "d": "->real"}, dir: "d/"},
		"a folder that is a file":          dropIns(files{"d": on}),
		"a folder that is a drop-in":       {files: files{"config.yaml": off, "d.conf": on}, dir: "d.conf"},
		"no folder":                        {files: files{"config.yaml": on}, otherwise: absent},

		// Flags, which win over the files.
		"a flag that turns it on":   flags(off, "--rotate-certificates"),
		"a flag that turns it off":  flags(on, "--rotate-certificates=false"),
		"a flag with an underscore": flags(on, "--rotate_certificates=False"),
		"a flag given twice":        flags(on, "--rotate-certificates=true", "--rotate-certificates=0"),
		"a flag for serving":        flags(off, "--rotate-server-certificates"),
		"a flag against serving":    flags(serve, "--rotate-server-certificates=f"),
		"flags for both":            flags(off, "--rotate-certificates=1", "--rotate_server_certificates=T"),
		"a flag for the other":      flags(on, "--rotate-server-certificates=false"),
		"a flag over a drop-in":     {files: files{"config.yaml": off, "d/90.conf": on}, flags: []string{"--rotate-certificates=false"}},
	}
}

// TestKubeletFiles has a kubelet read configurations: its result is the one that the
// authenticator says.
func TestKubeletFiles(t *testing.T) {
	kubeletNeeds(t)
	for name, tree := range kubeletTrees() {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			tree.write(t, root)
			config, drops := filepath.Join(root, "config.yaml"), root+"/"+tree.dir
			if tree.dir == "" {
				drops = filepath.Join(root, "d")
			}
			want := kubeletDoes(t, root, append([]string{"--config=" + config, "--config-dir=" + drops}, tree.flags...))
			got, err := authenticatorSays(t, root, authenticator.Kubelet{ConfigFile: config, ConfigDir: drops, FlagFiles: []string{filepath.Join(root, "kubelet.env")}})
			if tree.otherwise != "" {
				if want != refused || got == refused {
					t.Errorf("got %q, want %q, which is all that may be otherwise because %s", got, want, tree.otherwise)
				}
			} else if got != want {
				t.Errorf("got %q, %v; the kubelet says %q", got, err, want)
			}
		})
	}
}

// write makes the files below root.
func (tree *kubeletTree) write(t *testing.T, root string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, "kubelet.env"), []byte(`KUBELET_EXTRA_ARGS="`+strings.Join(tree.flags, " ")+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(tree.files)) {
		path, text := filepath.Join(root, name), tree.files[name]
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if target, ok := strings.CutPrefix(text, "->"); ok && filepath.IsAbs(target) {
			err = errors.Join(err, os.Symlink(target, path))
		} else if ok {
			err = errors.Join(err, os.Symlink(filepath.Join(root, target), path))
		} else if strings.HasSuffix(name, "/") {
			err = errors.Join(err, os.MkdirAll(path, 0o700))
		} else {
			err = errors.Join(err, os.WriteFile(path, []byte(text), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// kubeletDoes starts a kubelet, and ends it when it has logged what its configuration is.
func kubeletDoes(t *testing.T, root string, flags []string) string {
	t.Helper()
	cmd := exec.Command("unshare", append([]string{"-m", "-n", "-p", "-f", "--kill-child", controlplane.Kubelet(t),
		"--root-dir=" + filepath.Join(root, "root"), "--cert-dir=" + filepath.Join(root, "pki"), "--fail-cgroupv1=false", "--container-runtime-endpoint=unix:///none", "-v=5"}, flags...)...)
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var rotate, serve string
	for lines := bufio.NewScanner(log); (rotate == "" || serve == "") && lines.Scan(); {
		if _, value, ok := strings.Cut(lines.Text(), `"RotateCertificates": `); ok {
			rotate = value
		} else if _, value, ok := strings.Cut(lines.Text(), `"ServerTLSBootstrap": `); ok {
			serve = value
		}
	}
	_ = cmd.Process.Kill()
	_, _ = io.Copy(io.Discard, log)
	_ = cmd.Wait()
	if rotate == "" || serve == "" {
		return refused
	}
	return does(rotate == "true,", serve == "true,")
}

// does says which certificates a kubelet gets by itself.
func does(rotate, serve bool) string {
	return map[bool]map[bool]string{true: {true: both, false: rotates}, false: {true: serves, false: ""}}[rotate][serve]
}

// authenticatorSays returns an authenticator's findings on a kubelet for which it also writes serving
// certificates.
func authenticatorSays(t *testing.T, root string, k authenticator.Kubelet) (said string, why []string) {
	t.Helper()
	a, err := authenticator.New(authenticator.Config{
		NodeName: "node-1", Dir: filepath.Join(root, "certificates"), Serving: &authenticator.Serving{DNSNames: []string{"node-1"}}, Kubelet: k,
		Kind: authenticator.EvidenceOf("tpm", func(context.Context) (attest.Prover, error) { return nil, errors.ErrUnsupported }),
		API:  func() (*rest.Config, error) { return nil, errors.ErrUnsupported },
	})
	if err != nil {
		t.Fatal(err)
	}
	why = a.Status().Problems
	text := strings.Join(why, "\n")
	if strings.Contains(text, "kubelet-file") {
		return refused, why
	}
	return does(strings.Contains(text, "request one without evidence"), strings.Contains(text, "request serving certificates itself")), why
}
