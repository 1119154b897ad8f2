package authenticator

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/internal/nodename"
	"github.com/nodeattest/nodeattest/kube/internal/kubelet"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkKubelet is the check that fails if a kubelet's configuration has it get certificates in
// its own way, without evidence. Got names the setting and where it is, Want says what to do.
const checkKubelet refusal.Check = "kubelet-configuration"

// Kubelet says where to look for the kubelet's own configuration. The zero value looks
// nowhere.
type Kubelet struct {
	// ConfigFile is the file of --config, a KubeletConfiguration in YAML or JSON; it may be
	// missing. ConfigDir is the folder of --config-dir, whose *.conf files override it. Of
	// these and of FlagFiles, nobody may be able to write to a file but its owner, who is this
	// process's user or root.
	ConfigFile, ConfigDir string
	// FlagFiles are files that contain flags of the kubelet, as patterns of
	// path/filepath.Match: environment files and systemd units. If a file hides another of the
	// same name by being in an earlier folder, only the first is read.
	FlagFiles []string
	// Parent looks at the process that started this one, if that is a kubelet, as it is for a
	// plugin, and at the files that it names. Linux only.
	Parent bool
	// Processes looks at the kubelets that run on this machine. Those of other users, and those
	// in a container, are not believed. Linux only, and not used by the plugin.
	Processes bool

	// serving says that serving certificates are written for the kubelet, which then must not
	// ask for its own.
	serving bool
	// nodeName is what the kubelet should call its node.
	nodeName string
}

const (
	wayRotate = "the kubelet would use the plugin's certificate only to ask for one of its own, without evidence, and do the rest as anonymous: set rotateCertificates to false, or --rotate-certificates=false, which wins"
	wayBoot   = "the kubelet would ask for a certificate without evidence, and overwrite its kubeconfig: start it without this flag"
	wayServe  = "the kubelet would ask for serving certificates of its own beside those that are written for it: set serverTLSBootstrap to false, or --rotate-server-certificates=false, which wins"
)

// Check looks at the parent, or else at the files. The check of the error is
// kubelet-configuration or kubelet-file.
func (k *Kubelet) Check() error {
	if k == nil {
		return refusal.Config("Kubelet", "", "one")
	}
	if k.Parent {
		if f := kubelet.Process(os.Getppid()); f != nil {
			return k.checkProcess("the kubelet that asks", f, cmp.Or(f.Config, k.ConfigFile), cmp.Or(f.ConfigDir, k.ConfigDir))
		}
	}
	return k.checkFiles()
}

// CheckRunning is Check, but also looks at the kubelets that are running. It opens no file that
// a process names: a kubelet with another file than ConfigFile is an error.
func (k *Kubelet) CheckRunning() error {
	failed := []error{k.Check()}
	if k == nil {
		return failed[0]
	}
	failed = append(failed, k.eachFlagFile(func(path string, f *kubelet.Flags) error {
		return errors.Join(k.checkName(f, "in "+path), k.checkPaths(f, "in "+path))
	}))
	if !k.Processes {
		return errors.Join(failed...)
	}
	for pid, f := range kubelet.Running() {
		where := "kubelet, process " + strconv.Itoa(pid)
		failed = append(failed, k.checkPaths(f, "("+where+")"), k.checkProcess(where, f, k.ConfigFile, k.ConfigDir), k.checkName(f, "("+where+")"))
	}
	return errors.Join(failed...)
}

// checkPaths looks whether a kubelet has other files than those that are looked at, unless systemd or
// a shell fills in which.
func (k *Kubelet) checkPaths(f *kubelet.Flags, where string) error {
	file, dir := cmp.Or(f.Config, k.ConfigFile), cmp.Or(f.ConfigDir, k.ConfigDir)
	if samePath(file, k.ConfigFile) && samePath(dir, k.ConfigDir) || strings.ContainsAny(f.Config+f.ConfigDir, "$%") {
		return nil
	}
	return &refusal.Error{Check: kubelet.CheckFile, Got: "--config=" + refusal.Quote(file) + " --config-dir=" + refusal.Quote(dir) + " " + where,
		Want: "what is looked at here, " + refusal.Quote(k.ConfigFile) + " and " + refusal.Quote(k.ConfigDir) + ": set config and configDir of the kubelet-authenticator"}
}

// samePath reports whether both name one file. Behind a link a slash makes a difference: the
// kubelet goes into the folder then.
func samePath(a, b string) bool {
	if a == b {
		return true
	}
	path := filepath.Clean(a)
	if path != filepath.Clean(b) || strings.Contains(a+b, "..") {
		return false
	}
	info, err := os.Lstat(path)
	return err != nil || info.Mode().Type() != fs.ModeSymlink
}

// warnKubelet logs what is wrong with the kubelet, each text once in a row.
func (a *Authenticator) warnKubelet() {
	why := ""
	if err := a.c.Kubelet.CheckRunning(); err != nil {
		why = err.Error()
	}
	if before, _ := a.said.Swap("the kubelet", why); why != "" && before != why {
		a.c.Log.Warn("a kubelet goes around the certificates that are kept here", "why", why)
	}
}

// checkProcess looks at a kubelet's flags and at its files.
func (k *Kubelet) checkProcess(where string, f *kubelet.Flags, file, dir string) error {
	if f.Cut {
		return &refusal.Error{Check: kubelet.CheckFile, Got: "longer arguments (" + where + ")", Want: "at most 128 KiB"}
	}
	if f.Bootstrap != "" {
		return &refusal.Error{Check: checkKubelet, Got: "--bootstrap-kubeconfig=" + refusal.Text(f.Bootstrap) + " (" + where + ")", Want: wayBoot}
	}
	c, err := kubelet.ReadConfiguration(file, dir)
	if err != nil {
		return err
	}
	return k.check(c, given{f.Rotate, "(" + where + ")"}, given{f.Serve, "(" + where + ")"})
}

// checkFiles looks at the configured files.
func (k *Kubelet) checkFiles() error {
	c, err := kubelet.ReadConfiguration(k.ConfigFile, k.ConfigDir)
	if err != nil {
		return err
	}
	var rotate, serve given
	if err := k.eachFlagFile(func(path string, f *kubelet.Flags) error {
		if f.Bootstrap != "" {
			return &refusal.Error{Check: checkKubelet, Got: "--bootstrap-kubeconfig=" + refusal.Text(f.Bootstrap) + " in " + path, Want: wayBoot}
		}
		rotate.add(f.Rotate, path)
		serve.add(f.Serve, path)
		return nil
	}); err != nil {
		return err
	}
	return k.check(c, rotate, serve)
}

// given is a switch on a command line, which wins over the files; on is nil if it is not there.
type given struct {
	on    *bool
	where string
}

// add adds a file's switch. Which file comes last on the command line is not known here: one that
// turns it on counts.
func (g *given) add(on *bool, path string) {
	if on != nil && (g.on == nil || *on) {
		*g = given{on, "in " + path}
	}
}

// check returns an error if a field is on, by the switch or else by the file at.
func (g *given) check(flag, field, at, want string) error {
	switch {
	case g.on != nil && *g.on:
		return &refusal.Error{Check: checkKubelet, Got: flag + " " + g.where, Want: want}
	case g.on == nil && at != "":
		return &refusal.Error{Check: checkKubelet, Got: field + ": true in " + at, Want: want}
	}
	return nil
}

// checkPatterns refuses patterns that match nothing.
func (k *Kubelet) checkPatterns() error {
	for _, pattern := range k.FlagFiles {
		if _, err := filepath.Match(pattern, ""); err != nil {
			return refusal.Config("Kubelet.FlagFiles", refusal.Quote(pattern), "a pattern")
		}
	}
	return nil
}

// eachFlagFile reads the files with flags, until look returns an error.
func (k *Kubelet) eachFlagFile(look func(path string, f *kubelet.Flags) error) error {
	if err := k.checkPatterns(); err != nil {
		return err
	}
	names := map[string]bool{}
	for _, pattern := range k.FlagFiles {
		paths, _ := filepath.Glob(pattern) // the only error is that of the pattern
		for _, path := range paths {
			name := filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path)) // kubelet.service.d/10-kubeadm.conf
			if names[name] {
				continue
			}
			names[name] = true
			f, err := kubelet.ReadFlags(path)
			if err == nil {
				err = look(path, f)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// checkName looks whether a kubelet gives its node another name, unless systemd or a shell fills it
// in. The name is in lower case then, as the kubelet has it.
func (k *Kubelet) checkName(f *kubelet.Flags, where string) error {
	name := nodename.Lower(strings.TrimSpace(f.Hostname))
	if name == "" || k.nodeName == "" || name == k.nodeName || strings.ContainsAny(name, "$%") {
		return nil
	}
	return &refusal.Error{Check: checkKubelet, Got: "--hostname-override=" + refusal.Text(name) + " " + where,
		Want: k.nodeName + ", for which certificates are kept here: set nodeName of the kubelet-authenticator to the kubelet's name, or take the flag away"}
}

// check looks at a configuration and at the switches that win over it.
func (k *Kubelet) check(c *kubelet.Configuration, rotate, serve given) error {
	err := rotate.check("--rotate-certificates", "rotateCertificates", c.RotateCertificates, wayRotate)
	if k.serving {
		err = errors.Join(err, serve.check("--rotate-server-certificates", "serverTLSBootstrap", c.ServerTLSBootstrap, wayServe))
	}
	return err
}
