// Package kubelet reads what a kubelet runs with, by the kubelet's own rules: its flags, in
// files and of processes, and its configuration.
package kubelet

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/refusal"
)

// CheckFile is the check that fails if it is not known what a kubelet does: a file of its
// configuration exists but cannot be read or understood, or somebody else may write to it.
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

// ReadConfiguration reads the file of --config and lays over it those of --config-dir, as the
// kubelet does (mergeKubeletConfigurations of k8s.io/kubernetes/cmd/kubelet/app). Either may
// be "" or missing. The check of the error is [CheckFile].
func ReadConfiguration(file, dir string) (*Configuration, error) {
	c, merged := new(Configuration), map[string]any{}
	if file != "" {
		if err := c.add(file, merged, decodeMain); err != nil {
			return nil, err
		}
	}
	if dir == "" {
		return c, nil
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
		return c.add(path, merged, mergeDropIn)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, CheckFile) {
		err = &refusal.Error{Check: CheckFile, Got: "a folder " + dir + " that cannot be read", Want: "the kubelet's configuration", Err: err}
	}
	if errors.Is(err, CheckFile) {
		return nil, err
	}
	return c, nil
}

// add reads one file over what those before it have given.
func (c *Configuration) add(path string, merged map[string]any, decode func(text []byte, merged map[string]any) error) error {
	text, err := readFile(path)
	if err != nil || len(text) == 0 {
		return err
	}
	var now fields
	if err = decode(text, merged); err == nil {
		if text, err = json.Marshal(merged); err == nil {
			err = json.Unmarshal(text, &now) // in any spelling
		}
	}
	if err != nil {
		return &refusal.Error{Check: CheckFile, Got: "a configuration in " + path + " that cannot be read", Want: "a KubeletConfiguration", Err: err}
	}
	set(&c.RotateCertificates, now.RotateCertificates, path)
	set(&c.ServerTLSBootstrap, now.ServerTLSBootstrap, path)
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

// decodeMain reads the main file, whose fields have one spelling; others are ignored.
func decodeMain(text []byte, merged map[string]any) error {
	var main fields
	text, err := yaml.YAMLToJSON(text)
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
	var patch map[string]any
	text, err := yaml.YAMLToJSONStrict(text)
	if err == nil {
		err = json.Unmarshal(text, &patch)
	}
	for name, value := range patch {
		if value == nil {
			delete(merged, name)
		} else if strings.EqualFold(name, "rotateCertificates") || strings.EqualFold(name, "serverTLSBootstrap") {
			merged[name] = value
		}
	}
	return err
}

// readFile reads a file that may be missing. It follows links, as the kubelet does and systemd,
// where one to /dev/null is an empty file.
func readFile(path string) ([]byte, error) {
	target, err := filepath.EvalSymlinks(path)
	var text []byte
	if err == nil && target != os.DevNull {
		text, err = safefile.Read(target, maxFile, safefile.Trusted)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, &refusal.Error{Check: CheckFile, Got: "a file " + path + " that cannot be read", Want: "the kubelet's configuration", Err: err}
	}
	return text, nil
}
