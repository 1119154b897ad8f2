// Package kubelet reads a kubelet's configuration and its flags, in files and of processes, by the
// kubelet's own rules.
package kubelet

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/refusal"
)

// CheckFile is the check that fails if the kubelet's configuration is unknown: a file exists but cannot
// be read or is invalid, or another user may write to it.
const CheckFile refusal.Check = "kubelet-file"

// Bounds of one file, in bytes, and of a folder, in names.
const (
	maxFile  = 1 << 20
	maxNames = 1000
)

// Configuration has the fields of a KubeletConfiguration that bypass the plugin.
type Configuration struct {
	// RotateCertificates and ServerTLSBootstrap are the paths of the files that turn these fields
	// on; "" is off.
	RotateCertificates, ServerTLSBootstrap string
}

// fields are parts of a KubeletConfiguration.
type fields struct {
	RotateCertificates bool `json:"rotateCertificates,omitempty"`
	ServerTLSBootstrap bool `json:"serverTLSBootstrap,omitempty"`
}

// kind is the type of each file.
var kind = schema.GroupVersionKind{Group: "kubelet.config.k8s.io", Version: "v1beta1", Kind: "KubeletConfiguration"}

// reading is a configuration while its files are read.
type reading struct {
	Configuration
	merged map[string]any
	unfit  error // a field has the wrong type, unless a later file replaces it
}

// ReadConfiguration reads the file of --config and merges the files of --config-dir into it, as the
// kubelet does (mergeKubeletConfigurations of k8s.io/kubernetes/cmd/kubelet/app). It refuses a file that
// the kubelet refuses, except for fields that are not in [Configuration]. Either path may be "" or
// missing. The check of the error is [CheckFile].
func ReadConfiguration(file, dir string) (*Configuration, error) {
	r := reading{merged: map[string]any{}}
	if file != "" {
		if err := r.add(file, decodeMain); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if dir != "" {
		if err := r.walk(dir); err != nil {
			return nil, err
		}
	}
	if r.unfit != nil {
		return nil, r.unfit
	}
	return &r.Configuration, nil
}

// walk reads the files of a folder that may be missing.
func (r *reading) walk(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	names := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		names++
		switch {
		case err != nil:
			return err
		case names > maxNames:
			return errors.New("more than " + strconv.Itoa(maxNames) + " names")
		case entry.IsDir() || filepath.Ext(path) != ".conf":
			return nil
		}
		return r.add(path, mergeDropIn)
	})
	if err != nil && !errors.Is(err, CheckFile) {
		err = &refusal.Error{Check: CheckFile, Got: "a folder " + dir + " that cannot be read", Want: "the kubelet's configuration", Err: err}
	}
	return err
}

// add merges one file into the files before it.
func (r *reading) add(path string, decode func(text []byte, merged map[string]any) error) error {
	text, err := readFile(path)
	if err != nil {
		return err
	}
	refuse := func(err error) error {
		return &refusal.Error{Check: CheckFile, Got: "a configuration in " + path + " that the kubelet refuses", Want: "a KubeletConfiguration of " + kind.GroupVersion().String(), Err: err}
	}
	if len(text) == 0 {
		return refuse(errors.New("it is empty"))
	}
	if err := decode(text, r.merged); err != nil {
		return refuse(err)
	}
	var now fields
	text, err = json.Marshal(r.merged)
	if err == nil {
		err = json.Unmarshal(text, &now) // in any letter case
	}
	if err != nil {
		r.unfit = cmp.Or(r.unfit, refuse(err))
		return nil
	}
	r.unfit = nil
	set(&r.RotateCertificates, now.RotateCertificates, path)
	set(&r.ServerTLSBootstrap, now.ServerTLSBootstrap, path)
	return nil
}

// set records whether a field is on after a file was read.
func set(at *string, on bool, path string) {
	if !on {
		*at = ""
	} else if *at == "" {
		*at = path
	}
}

// decodeMain reads the main file, whose field names are case-sensitive but for its kind. Unknown fields
// are ignored.
func decodeMain(text []byte, merged map[string]any) error {
	var err error
	if !utilyaml.IsJSONBuffer(text) {
		if text, err = yaml.YAMLToJSON(text); err != nil {
			return err
		}
	}
	is, err := serializer.DefaultMetaFactory.Interpret(text)
	if err == nil {
		err = checkKind(is)
	}
	var main fields
	if err == nil {
		err = strictjson.UnmarshalCaseSensitivePreserveInts(text, &main)
	}
	if err == nil {
		text, err = json.Marshal(main)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, &merged)
}

// mergeDropIn merges a file of --config-dir by RFC 7386: null removes a field.
func mergeDropIn(text []byte, merged map[string]any) error {
	scheme, patch := runtime.NewScheme(), new(unstructured.Unstructured)
	decoder := serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme, scheme, serializer.SerializerOptions{Yaml: !utilyaml.IsJSONBuffer(text), Strict: true})
	_, is, err := decoder.Decode(text, nil, patch)
	if err == nil {
		err = checkKind(is)
	}
	if err != nil {
		return err
	}
	for name, value := range patch.Object {
		if value == nil {
			delete(merged, name)
		} else if strings.EqualFold(name, "rotateCertificates") || strings.EqualFold(name, "serverTLSBootstrap") {
			merged[name] = value
		}
	}
	return nil
}

func checkKind(is *schema.GroupVersionKind) error {
	if *is != kind {
		return errors.New("the kind is " + strconv.Quote(refusal.Text(is.Kind)) + " of version " + strconv.Quote(refusal.Text(is.GroupVersion().String())))
	}
	return nil
}

// readFile reads a file. It follows links, as the kubelet and systemd do: a link to /dev/null is an empty
// file. If the file does not exist, the error matches fs.ErrNotExist.
func readFile(path string) ([]byte, error) {
	target, err := filepath.EvalSymlinks(path)
	var text []byte
	if err == nil && target != os.DevNull {
		text, err = safefile.Read(target, maxFile, safefile.Trusted)
	}
	if err != nil {
		return nil, &refusal.Error{Check: CheckFile, Got: "a file " + path + " that cannot be read", Want: "the kubelet's configuration", Err: err}
	}
	return text, nil
}
