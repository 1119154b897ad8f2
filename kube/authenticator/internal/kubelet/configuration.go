// Package kubelet reads what a kubelet runs with, by the kubelet's own rules: its flags, in
// files and of processes, and its configuration.
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

// CheckFile is the check that fails if it is not known what a kubelet does: a file of its
// configuration exists but cannot be read or understood, or another user may write to it.
const CheckFile refusal.Check = "kubelet-file"

// What is read of one file, in bytes, and of a folder, in names.
const (
	maxFile  = 1 << 20
	maxNames = 1000
)

// Configuration is what matters of a KubeletConfiguration.
type Configuration struct {
	// RotateCertificates and ServerTLSBootstrap name the files that turn the fields of these
	// names on; "" is off.
	RotateCertificates, ServerTLSBootstrap string
}

// fields are those of a KubeletConfiguration.
type fields struct {
	RotateCertificates bool `json:"rotateCertificates,omitempty"`
	ServerTLSBootstrap bool `json:"serverTLSBootstrap,omitempty"`
}

// kind is what each file says it is.
var kind = schema.GroupVersionKind{Group: "kubelet.config.k8s.io", Version: "v1beta1", Kind: "KubeletConfiguration"}

// reading is a configuration of which some files have been read.
type reading struct {
	Configuration
	merged map[string]any
	unfit  error // a field has another type, unless a later file mends it
}

// ReadConfiguration reads the file of --config and lays over it those of --config-dir, as the
// kubelet does (mergeKubeletConfigurations of k8s.io/kubernetes/cmd/kubelet/app). What makes the
// kubelet refuse a file is an error, unless it lies in a field that is not in [Configuration].
// Either may be "" or missing. The check of the error is [CheckFile].
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

// add reads one file over what those before it have given.
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
		err = json.Unmarshal(text, &now) // in any spelling
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

// set notes what a field is after a file was read.
func set(at *string, on bool, path string) {
	if !on {
		*at = ""
	} else if *at == "" {
		*at = path
	}
}

// decodeMain reads the main file, whose fields have one spelling but for its kind; others are
// ignored.
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

// mergeDropIn merges another file by RFC 7386: null removes a field.
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
		return errors.New("it has kind " + strconv.Quote(refusal.Text(is.Kind)) + " of version " + strconv.Quote(refusal.Text(is.GroupVersion().String())))
	}
	return nil
}

// readFile reads a file. It follows links, as the kubelet does and systemd, where one to /dev/null
// is an empty file. If there is none, the error is also fs.ErrNotExist.
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
