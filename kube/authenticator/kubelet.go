package authenticator

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/refusal"
)

// checkKubelet is the check that fails if a kubelet's configuration has it get certificates in
// its own way, without evidence. Got names the setting and where it is, Want says what to do.
const checkKubelet refusal.Check = "kubelet-configuration"

// checkKubeletFile is the check that fails if a file of the kubelet's configuration exists but
// cannot be read or understood, so that it is not known what the kubelet does.
const checkKubeletFile refusal.Check = "kubelet-file"

// Kubelet says where to look for the kubelet's own configuration. The zero value looks
// nowhere.
type Kubelet struct {
	// ConfigFile is the file of --config, a KubeletConfiguration in YAML or JSON; it may be
	// missing. ConfigDir is the folder of --config-dir, whose *.conf files override it.
	ConfigFile, ConfigDir string
	// FlagFiles are files that contain flags of the kubelet, as patterns of
	// path/filepath.Match: environment files and systemd units. If a file hides another of the
	// same name by being in an earlier folder, only the first is read.
	FlagFiles []string
	// Parent looks at the process that started this one, if that is a kubelet, as it is for a
	// plugin. Linux only.
	Parent bool
	// Processes looks at all kubelets that run on this machine. Linux only, and not used by
	// the plugin.
	Processes bool

	// serving says that serving certificates are written for the kubelet, which then must not
	// ask for its own.
	serving bool
}

const (
	wayRotate = "the kubelet would use the plugin's certificate only to ask for one of its own, without evidence, and do the rest as anonymous: set rotateCertificates to false"
	wayBoot   = "the kubelet would ask for a certificate without evidence, and overwrite its kubeconfig: start it with --kubeconfig alone"
	wayServe  = "the kubelet would ask for serving certificates of its own beside those that are written for it: set serverTLSBootstrap to false"
)

// maxKubeletFile bounds each file that is read, in bytes.
const maxKubeletFile = 1 << 20

// Check looks at the files and at the parent. The check of the error is
// kubelet-configuration or kubelet-file.
func (k *Kubelet) Check() error {
	if k == nil {
		return refusal.Config("Kubelet", "", "one")
	}
	if k.Parent {
		if arguments := argumentsOf(os.Getppid()); isKubelet(arguments) {
			return k.checkArguments("the kubelet that asks", arguments)
		}
	}
	return k.checkFiles()
}

// CheckRunning is Check, but also looks at the kubelets that are running.
func (k *Kubelet) CheckRunning() error {
	if err := k.Check(); err != nil || !k.Processes {
		return err
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	for _, path := range processes {
		pid, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			continue
		}
		if arguments := argumentsOf(pid); isKubelet(arguments) {
			if err := k.checkArguments("kubelet, process "+strconv.Itoa(pid), arguments); err != nil {
				return err
			}
		}
	}
	return nil
}

// argumentsOf returns the arguments of a process, or none if there is no such process.
func argumentsOf(pid int) []string {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

func isKubelet(arguments []string) bool {
	return len(arguments) > 0 && (filepath.Base(arguments[0]) == "kubelet" || filepath.Base(arguments[0]) == "hyperkube" && slices.Contains(arguments, "kubelet"))
}

// checkArguments looks at the flags of a kubelet and at the files that they name.
func (k *Kubelet) checkArguments(where string, arguments []string) error {
	f := flagsOf(arguments)
	if f.bootstrap != "" {
		return &refusal.Error{Check: checkKubelet, Got: "--bootstrap-kubeconfig=" + f.bootstrap + " (" + where + ")", Want: wayBoot}
	}
	config, configDir := f.config, f.configDir
	if config == "" {
		config = k.ConfigFile
	}
	if configDir == "" {
		configDir = k.ConfigDir
	}
	s, err := readSettings(config, configDir)
	if err != nil {
		return err
	}
	if f.rotate != nil { // flags win over files
		s.rotate, s.rotateAt = *f.rotate, "--rotate-certificates ("+where+")"
	}
	return k.checkSettings(s)
}

// checkFiles looks at the configured files.
func (k *Kubelet) checkFiles() error {
	s, err := readSettings(k.ConfigFile, k.ConfigDir)
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for _, pattern := range k.FlagFiles {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return refusal.Config("Kubelet.FlagFiles", refusal.Quote(pattern), "a pattern")
		}
		for _, path := range paths {
			name := filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path)) // kubelet.service.d/10-kubeadm.conf
			if names[name] {
				continue
			}
			names[name] = true
			text, err := readKubeletFile(path)
			if err != nil {
				return err
			}
			f := flagsIn(text)
			if f.bootstrap != "" {
				return &refusal.Error{Check: checkKubelet, Got: "--bootstrap-kubeconfig=" + f.bootstrap + " in " + path, Want: wayBoot}
			}
			if f.rotate != nil {
				s.rotate, s.rotateAt = *f.rotate, "--rotate-certificates in "+path
			}
		}
	}
	return k.checkSettings(s)
}

func (k *Kubelet) checkSettings(s *settings) error {
	switch {
	case s.rotate:
		return &refusal.Error{Check: checkKubelet, Got: s.rotateAt, Want: wayRotate}
	case s.serve && k.serving:
		return &refusal.Error{Check: checkKubelet, Got: s.serveAt, Want: wayServe}
	}
	return nil
}

// settings are the settings of a KubeletConfiguration that matter, and where they were found.
type settings struct {
	rotate, serve     bool
	rotateAt, serveAt string
}

// readSettings reads a configuration and the files that override it.
func readSettings(file, dir string) (*settings, error) {
	s := new(settings)
	paths := []string{}
	if file != "" {
		paths = append(paths, file)
	}
	if dir != "" {
		over, err := filepath.Glob(filepath.Join(dir, "*.conf"))
		if err != nil {
			return nil, refusal.Config("Kubelet.ConfigDir", refusal.Quote(dir), "a folder")
		}
		paths = append(paths, over...) // in the order of their names, as the kubelet reads them
	}
	for _, path := range paths {
		text, err := readKubeletFile(path)
		if err != nil {
			return nil, err
		}
		if err := s.read(path, text); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// read applies one file on top of the settings.
func (s *settings) read(path string, text []byte) error {
	var c struct {
		RotateCertificates *bool `json:"rotateCertificates"`
		ServerTLSBootstrap *bool `json:"serverTLSBootstrap"`
	}
	if err := yaml.Unmarshal(text, &c); err != nil {
		return &refusal.Error{Check: checkKubeletFile, Got: "a configuration in " + path + " that cannot be read", Want: "a KubeletConfiguration", Err: err}
	}
	if c.RotateCertificates != nil {
		s.rotate, s.rotateAt = *c.RotateCertificates, "rotateCertificates: true in "+path
	}
	if c.ServerTLSBootstrap != nil {
		s.serve, s.serveAt = *c.ServerTLSBootstrap, "serverTLSBootstrap: true in "+path
	}
	return nil
}

// readKubeletFile reads a file that may be missing.
func readKubeletFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxKubeletFile) {
		err = fmt.Errorf("it is no regular file of at most %d bytes", maxKubeletFile)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, &refusal.Error{Check: checkKubeletFile, Got: "a file " + path + " that cannot be read", Want: "the kubelet's configuration", Err: err}
	}
	return text, nil
}

// kubeletFlags are the flags that matter. If one is given twice, the last counts.
type kubeletFlags struct {
	bootstrap, config, configDir string
	rotate                       *bool
}

// flagsOf reads arguments as a kubelet does: a value follows an equals sign or is the next
// argument, a switch may have a value or none, and an underscore in a name means a hyphen.
func flagsOf(arguments []string) kubeletFlags {
	var f kubeletFlags
	for n := 0; n < len(arguments); n++ {
		if arguments[n] == "--" {
			break
		}
		name, value, has := strings.Cut(arguments[n], "=")
		name, ok := strings.CutPrefix(name, "--")
		if !ok {
			continue
		}
		name = strings.ReplaceAll(name, "_", "-")
		if name == "rotate-certificates" {
			on := true
			if has {
				on, _ = strconv.ParseBool(value) // the kubelet refuses a value that is neither
			}
			f.rotate = &on
			continue
		}
		into := map[string]*string{"bootstrap-kubeconfig": &f.bootstrap, "config": &f.config, "config-dir": &f.configDir}[name]
		if into == nil {
			continue
		}
		if !has && n+1 < len(arguments) {
			n++
			value = arguments[n]
		}
		*into = value
	}
	return f
}

// flagText finds flags in a file in another format.
var flagText = regexp.MustCompile(`--(bootstrap[-_]kubeconfig|rotate[-_]certificates)(?:=("[^"]*"|'[^']*'|[^\s"']*))?(?:[ \t]+([^\s"'-][^\s"']*))?`)

// flagsIn finds flags in an environment file or a systemd unit, skipping comments.
func flagsIn(text []byte) kubeletFlags {
	var f kubeletFlags
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == '#' || line[0] == ';' {
			continue
		}
		for _, m := range flagText.FindAllSubmatch(line, -1) {
			value := strings.Trim(string(m[2]), `"'`)
			has := m[2] != nil
			if strings.HasPrefix(string(m[1]), "rotate") {
				on := true
				if has {
					on, _ = strconv.ParseBool(value)
				}
				f.rotate = &on
				continue
			}
			if !has {
				value = string(m[3])
			}
			f.bootstrap = value
		}
	}
	return f
}
