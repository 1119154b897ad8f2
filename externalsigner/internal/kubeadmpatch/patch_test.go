package kubeadmpatch

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	socket  = "/run/external-jwt-signer/socket"
	keyFile = "    - --service-account-key-file=/etc/kubernetes/pki/sa.pub\n"
	signing = "    - --service-account-signing-key-file=/etc/kubernetes/pki/sa.key\n"
	issuer  = "    - --service-account-issuer=https://kubernetes.default.svc.cluster.local\n"
)

// TestPatchTakesFlagsOut: wherever they stand, and in each form that kube-apiserver takes.
func TestPatchTakesFlagsOut(t *testing.T) {
	manifest := string(read(t, rendered))
	want := commandOf(t, strings.NewReplacer(keyFile, "", signing, "").Replace(manifest))
	want = append(want, "--service-account-signing-endpoint="+socket)
	for name, pairs := range map[string][]string{
		"as kubeadm renders it": nil,
		"several":               {keyFile, keyFile + "    - --service-account-key-file=/etc/kubernetes/pki/signers.pub\n" + keyFile},
		"first and last":        {keyFile, "", signing, "", "    - kube-apiserver\n", "    - kube-apiserver\n" + signing, "    image:", keyFile + "    image:"},
		"the value alone":       {keyFile, "    - --service-account-key-file\n    - /etc/kubernetes/pki/sa.pub\n", signing, "    - --service-account-signing-key-file\n    - /k\n"},
		"an empty value":        {keyFile, "    - --service-account-key-file\n    - \"\"\n", signing, "    - --service-account-signing-key-file=\n"},
		"underscores":           {keyFile, "    - --service_account_key_file=/k\n"},
		"a value of its name":   {signing, signing + "    - --service-account-key-file\n    - --service-account-key-file\n"},
		"more than a line":      {signing, "    - \"--service-account-signing-key-file=/a\\n---\\n- op: remove\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.NewReplacer(pairs...).Replace(manifest)
			patched := apply(t, mustPatch(t, text), text)
			if got := commandOf(t, patched); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			if _, err := makePatch([]byte(patched), socket); err == nil || !strings.Contains(err.Error(), "is in command already") {
				t.Errorf("a patch of the patched manifest: %v", err)
			}
		})
	}
}

// TestPatchMountsFolder: the socket's folder comes in read-only, and the rest of the manifest stays.
func TestPatchMountsFolder(t *testing.T) {
	manifest := string(read(t, rendered))
	patch, err := makePatch([]byte(manifest), "/var/lib/signer/of it/s")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer(keyFile, "", signing, "", "    image:", "    - --service-account-signing-endpoint=/var/lib/signer/of it/s\n    image:",
		"  hostNetwork:", "    - mountPath: /var/lib/signer/of it\n      name: external-jwt-signer\n      readOnly: true\n  hostNetwork:",
		"status: {}", "  - hostPath:\n      path: /var/lib/signer/of it\n      type: Directory\n    name: external-jwt-signer\nstatus: {}").Replace(manifest)
	if got := apply(t, patch, manifest); !reflect.DeepEqual(tree(t, got), tree(t, want)) {
		t.Errorf("got\n%s", got)
	}
}

// TestPatchGuards: of a manifest that has changed since, the patch takes nothing else out.
func TestPatchGuards(t *testing.T) {
	manifest := string(read(t, rendered))
	patch := mustPatch(t, manifest)
	const image = "kube-apiserver:v1.36.3"
	for name, pair := range map[string][2]string{
		"a flag before them":       {issuer, "    - --runtime-config=\n" + issuer},
		"a flag less":              {issuer, ""},
		"another file":             {"pki/sa.key", "pki/sa2.key"},
		"another file of public":   {"pki/sa.pub", "pki/sa2.pub"},
		"another order":            {keyFile + signing, signing + keyFile},
		"another container before": {"  - command:\n", "  - name: another\n    command: [x]\n  - command:\n"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.ReplaceAll(manifest, pair[0], pair[1])
			if _, err := tryApply(patch, changed); changed == manifest || err == nil || !strings.Contains(err.Error(), "test of ") {
				t.Errorf("the patch of the manifest before applies: %v", err)
			}
		})
	}
	for name, pair := range map[string][2]string{
		"another image":           {image, "kube-apiserver:v1.37.2"},
		"another flag's value":    {"192.0.2.10", "192.0.2.11"},
		"a flag after them":       {signing, signing + "    - --v=4\n"},
		"one more volume and use": {"  volumes:\n", "  volumes:\n  - {name: more, emptyDir: {}}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.ReplaceAll(manifest, pair[0], pair[1])
			if _, err := tryApply(patch, changed); changed == manifest || err != nil {
				t.Errorf("the patch of the manifest before does not apply: %v", err)
			}
		})
	}
}

// TestPatchRefuses: a manifest that differs from kubeadm's where the patch depends on it.
func TestPatchRefuses(t *testing.T) {
	manifest := string(read(t, rendered))
	for name, row := range map[string]struct{ old, new, err string }{
		"another kind":              {"kind: Pod", "kind: Deployment", `kind "Deployment"`},
		"another version":           {"apiVersion: v1", "apiVersion: v2", `apiVersion "v2"`},
		"another case":              {"kind: Pod", "Kind: Pod", `kind ""`},
		"another program":           {"- kube-apiserver\n", "- kube-controller-manager\n", `the command ["kube-controller-manager"]`},
		"a shell":                   {"- kube-apiserver\n", "- sh\n    - -c\n    - kube-apiserver\n", `the command ["sh"]`},
		"no command":                {"- command:", "- other:", "the command []"},
		"another container":         {"    name: kube-apiserver\n    ports", "    name: etcd\n    ports", `the container "etcd"`},
		"two containers":            {"  - command:", "  - name: sidecar\n  - command:", "2 containers"},
		"an init container":         {"  containers:", "  initContainers: [{name: a}]\n  containers:", "2 containers"},
		"no containers":             {"  containers:", "  others:", "0 containers"},
		"an init container alone":   {"  containers:", "  initContainers: [{name: a}]\n  others:", "1 containers"},
		"flags in args too":         {"    image:", "    args: [--service-account-key-file=/k]\n    image:", "args in addition to command"},
		"an end of the flags":       {signing, signing + "    - --\n", `"--" in command`},
		"an endpoint":               {signing, signing + "    - --service-account-signing-endpoint=/s\n", "--service-account-signing-endpoint=/s is in command already"},
		"an endpoint in two":        {signing, signing + "    - --service_account-signing-endpoint\n    - /s\n", "--service-account-signing-endpoint=/s is in command already"},
		"no key that signs":         {signing, "", "no --service-account-signing-key-file"},
		"no key that verifies":      {keyFile, "", "no --service-account-key-file"},
		"a flag without its value":  {"    image:", "    - --service-account-key-file\n    image:", "--service-account-key-file is the last element"},
		"no issuer":                 {issuer, "", "no --service-account-issuer"},
		"an issuer without a value": {"    image:", "    - --service-account-issuer\n    image:", "--service-account-issuer is the last element"},
		"an endpoint without one":   {"    image:", "    - --service-account-signing-endpoint\n    image:", "endpoint is the last element"},
		"the volume":                {"  volumes:\n", "  volumes:\n  - name: external-jwt-signer\n", "the volume external-jwt-signer is there already"},
		"a mount of the folder":     {"/usr/share/ca-certificates", "/run/external-jwt-signer/", "and the mount /run/external-jwt-signer/ of"},
		"a mount of one above it":   {"- mountPath: /usr/share/ca-certificates", "- mountPath: /run", "and the mount /run of"},
		"a mount of all":            {"- mountPath: /usr/share/ca-certificates", "- mountPath: /", "and the mount / of"},
		"a mount of one in it":      {"- mountPath: /usr/share/ca-certificates", "- mountPath: /run/external-jwt-signer/x", "contain one another"},
		"no mounts":                 {"    volumeMounts:", "    others:", "no mounts"},
		"no volumes":                {"  volumes:", "  others:", "no volumes"},
		"a number as a flag":        {keyFile, keyFile + "    - 7\n", "cannot unmarshal number"},
		"a field twice":             {"kind: Pod", "kind: Pod\nkind: Pod", "already set"},
		"a second document":         {"status: {}", "---\nkind: Pod", "more than one document"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.ReplaceAll(manifest, row.old, row.new)
			if changed == manifest {
				t.Fatal("the same manifest")
			}
			if patch, err := makePatch([]byte(changed), socket); err == nil || !strings.Contains(err.Error(), row.err) {
				t.Errorf("got %s, %v", patch, err)
			}
		})
	}
}

// TestPatchSaysLifetime: a kube-apiserver whose longest lifetime is over the signer's does not start.
func TestPatchSaysLifetime(t *testing.T) {
	manifest := string(read(t, rendered))
	if patch := mustPatch(t, manifest); strings.Contains(string(patch), "maxLifetime") {
		t.Errorf("without the flag:\n%s", patch)
	}
	manifest = strings.Replace(manifest, issuer, issuer+"    - --service-account-max-token-expiration=1h\n    - --service_account-max-token-expiration\n    - \"24h\\n- op: remove\"\n", 1)
	patch := mustPatch(t, manifest)
	if !strings.Contains(string(patch), "\n# and maxLifetime: \"24h\\n- op: remove\" or more\n- op: test\n") {
		t.Errorf("got\n%s", patch)
	}
	apply(t, patch, manifest)
}

func TestPatchRefusesSocket(t *testing.T) {
	manifest := read(t, rendered)
	for socket, want := range map[string]string{
		"@signer": "an abstract name", "": "an absolute path", "s": "an absolute path", "run/a/s": "an absolute path", "/s": "a socket in a folder", "/": "a socket in a folder",
		"/run/a/": "its shortest form", "/run/../a/s": "its shortest form", "/run/s": "which others use", "/run//a/s": "its shortest form",
		"/run/a/" + strings.Repeat("s", maxSocket-6): "108 bytes", "/etc/kubernetes/pki/s": "contain one another", "/etc/kubernetes/pki/a/s": "contain one another", "/usr/share/s": "contain one another",
	} {
		if _, err := makePatch(manifest, socket); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", socket, err, want)
		}
	}
	for _, socket := range []string{"/run/a/" + strings.Repeat("s", maxSocket-7), "/run/a/@s", "/usr/shared/s"} {
		if _, err := makePatch(manifest, socket); err != nil {
			t.Errorf("%s: %v", socket, err)
		}
	}
}

// FuzzPatch: the patch of any manifest applies to it, and leaves its command without the flags for files and
// with one endpoint.
func FuzzPatch(f *testing.F) {
	manifest, err := yaml.YAMLToJSON([]byte("{apiVersion: v1, kind: Pod, spec: {containers: [{name: kube-apiserver, command: [kube-apiserver, --service-account-issuer=i, " +
		"--service-account-key-file, k, --service-account-signing-key-file=s, --service_account_key_file=l], volumeMounts: [{name: a, mountPath: /a}]}], volumes: [{name: a}]}}"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(manifest, socket)
	f.Add([]byte("kind: Pod\n---\n"), "@s")
	f.Fuzz(func(t *testing.T, text []byte, socket string) {
		patch, err := makePatch(text, socket)
		if err != nil {
			return
		}
		if strings.Contains(string(patch), "\n---") {
			t.Errorf("kubeadm would split the patch\n%s", patch)
		}
		patched, err := tryApply(patch, string(text))
		if err != nil {
			t.Fatal(err)
		}
		_, err = makePatch([]byte(patched), socket)
		if err == nil || !strings.Contains(err.Error(), "already") && !strings.Contains(err.Error(), "contain one another") {
			t.Errorf("the patched manifest can be patched: %v\n%s", err, patched)
		}
		for _, element := range commandOf(t, patched)[1:] {
			name, _, _ := strings.Cut(strings.ReplaceAll(element, "_", "-"), "=")
			if name == "--"+keyFileFlag || name == "--"+signingKeyFlag {
				t.Errorf("%s is still there", element)
			}
		}
	})
}

func mustPatch(t *testing.T, manifest string) []byte {
	t.Helper()
	patch, err := makePatch([]byte(manifest), socket)
	if err != nil {
		t.Fatal(err)
	}
	return patch
}

func tree(t *testing.T, text string) (all map[string]any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func commandOf(t *testing.T, text string) (command []string) {
	t.Helper()
	m := new(manifest)
	if err := yaml.Unmarshal([]byte(text), m); err != nil || len(m.Spec.Containers) == 0 {
		t.Fatalf("%v in %s", err, text)
	}
	return m.Spec.Containers[0].Command
}

func apply(t *testing.T, patch []byte, manifest string) string {
	t.Helper()
	patched, err := tryApply(patch, manifest)
	if err != nil {
		t.Fatal(err)
	}
	return patched
}

// tryApply applies a JSON patch by the letter of RFC 6902, of which it knows three operations.
func tryApply(patch []byte, manifest string) (string, error) {
	var operations []operation
	var whole any
	if err := yaml.UnmarshalStrict(patch, &operations); err != nil {
		return "", err
	}
	if err := yaml.Unmarshal([]byte(manifest), &whole); err != nil {
		return "", err
	}
	for _, o := range operations {
		var err error
		if whole, err = change(whole, strings.Split(o.Path, "/")[1:], o); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(whole)
	return string(text), err
}

// change carries an operation out in the value that a path begins at, and returns the value.
func change(at any, path []string, o operation) (any, error) {
	if len(path) == 0 {
		if o.Op != "test" || !reflect.DeepEqual(at, o.Value) {
			return nil, fmt.Errorf("test of %s: got %v, want %v", o.Path, at, o.Value)
		}
		return at, nil
	}
	if object, ok := at.(map[string]any); ok {
		below, err := change(object[path[0]], path[1:], o)
		object[path[0]] = below
		return object, err
	}
	list, _ := at.([]any)
	if path[0] == "-" && len(path) == 1 && o.Op == "add" {
		return append(list, o.Value), nil
	}
	n, err := strconv.Atoi(path[0])
	if err != nil || n < 0 || n >= len(list) {
		return nil, fmt.Errorf("test of %s: no such element", o.Path)
	}
	if len(path) == 1 && o.Op == "remove" {
		return slices.Delete(list, n, n+1), nil
	}
	list[n], err = change(list[n], path[1:], o)
	return list, err
}
