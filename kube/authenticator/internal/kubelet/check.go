package kubelet

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/refusal"
)

// CheckConfiguration is the check that fails if a kubelet is configured to get certificates by itself,
// without evidence. Got names the setting and its file, Want the remedy.
const CheckConfiguration refusal.Check = "kubelet-configuration"

const (
	wayRotate = "the kubelet would use the plugin's certificate only to request one without evidence, and make all other requests as anonymous: set rotateCertificates to false, or --rotate-certificates=false, which wins"
	wayBoot   = "the kubelet would request a certificate without evidence, and overwrite its kubeconfig: start it without this flag"
	wayServe  = "the kubelet would request serving certificates itself instead of using the attested one: set serverTLSBootstrap to false, or --rotate-server-certificates=false, which wins"
)

// Places are the fields of authenticator.Kubelet.
type Places struct {
	ConfigFile, ConfigDir string
	FlagFiles             []string
	Parent                bool
	Processes             bool
}

// Rules are the requirements on a kubelet's configuration.
type Rules struct {
	Places
	// Serving says that the kubelet gets an attested serving certificate, and so must not request
	// one itself.
	Serving bool
	// NodeName is the required name of the kubelet's node; "" for any name.
	NodeName string
}

// Check checks the parent process if it is a kubelet, or else the files. The check of the error is
// [CheckConfiguration] or [CheckFile].
func (r *Rules) Check() error {
	if r.Parent {
		if f := Process(os.Getppid()); f != nil {
			return r.checkProcess("(the kubelet that runs the plugin)", f, cmp.Or(f.Config, r.ConfigFile), cmp.Or(f.ConfigDir, r.ConfigDir))
		}
	}
	return r.checkFiles()
}

// CheckRunning is Check, and also checks the node's name and the running kubelets. It opens no file that
// a process names: a running kubelet whose file is not ConfigFile is an error.
func (r *Rules) CheckRunning() error {
	failed := []error{r.Check(), r.eachFlagFile(func(where string, f *Flags) error {
		return errors.Join(r.checkName(where, f), r.checkPaths(where, asWritten(f.Config), asWritten(f.ConfigDir)))
	})}
	if !r.Processes {
		return errors.Join(failed...)
	}
	for pid, f := range Running() {
		where := "(kubelet, process " + strconv.Itoa(pid) + ")"
		failed = append(failed, r.checkPaths(where, f.Config, f.ConfigDir), r.checkProcess(where, f, r.ConfigFile, r.ConfigDir), r.checkName(where, f))
	}
	return errors.Join(failed...)
}

// checkPaths refuses a kubelet whose configuration files are not ConfigFile and ConfigDir.
func (r *Rules) checkPaths(where, file, dir string) error {
	file, dir = cmp.Or(file, r.ConfigFile), cmp.Or(dir, r.ConfigDir)
	if samePath(file, r.ConfigFile) && samePath(dir, r.ConfigDir) {
		return nil
	}
	return &refusal.Error{Check: CheckFile, Got: "--config=" + refusal.Quote(file) + " --config-dir=" + refusal.Quote(dir) + " " + where,
		Want: refusal.Quote(r.ConfigFile) + " and " + refusal.Quote(r.ConfigDir) + ", which the kubelet-authenticator checks: set kubelet.config and kubelet.configDir in its file"}
}

// asWritten returns a path in a unit, or "" if systemd or a shell expands it.
func asWritten(path string) string {
	if strings.ContainsAny(path, "$%") {
		return ""
	}
	return path
}

// samePath reports whether both paths name one file. With a slash at the end, the kubelet follows a
// link to a folder.
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

// checkBootstrap refuses a kubelet that would request its first certificate itself.
func checkBootstrap(where string, f *Flags) error {
	if f.Bootstrap == "" {
		return nil
	}
	return CheckConfiguration.Refuse("--bootstrap-kubeconfig="+refusal.Text(f.Bootstrap)+" "+where, wayBoot)
}

// checkName refuses a kubelet whose node has another name, unless systemd or a shell expands it. The
// kubelet changes the name to lower case.
func (r *Rules) checkName(where string, f *Flags) error {
	name := strings.ToLower(strings.TrimSpace(f.Hostname))
	if name == "" || r.NodeName == "" || name == r.NodeName || strings.ContainsAny(name, "$%") {
		return nil
	}
	return CheckConfiguration.Refuse("--hostname-override="+refusal.Text(name)+" "+where,
		r.NodeName+", the node of the certificates: set nodeName of the kubelet-authenticator to the kubelet's name, or remove the flag")
}

// checkProcess checks the flags of a kubelet process and its files.
func (r *Rules) checkProcess(where string, f *Flags, file, dir string) error {
	if f.Cut {
		return &refusal.Error{Check: CheckFile, Got: "arguments that are too long " + where, Want: "at most 128 KiB"}
	}
	if err := checkBootstrap(where, f); err != nil {
		return err
	}
	c, err := ReadConfiguration(file, dir)
	if err != nil {
		return err
	}
	return r.check(c, given{f.Rotate, where}, given{f.Serve, where})
}

// checkFiles checks the configured files.
func (r *Rules) checkFiles() error {
	c, err := ReadConfiguration(r.ConfigFile, r.ConfigDir)
	if err != nil {
		return err
	}
	var rotate, serve given
	if err := r.eachFlagFile(func(where string, f *Flags) error {
		rotate.add(f.Rotate, where)
		serve.add(f.Serve, where)
		return checkBootstrap(where, f)
	}); err != nil {
		return err
	}
	return r.check(c, rotate, serve)
}

// given is a switch of the command line, which overrides the files; on is nil if it is absent.
type given struct {
	on    *bool
	where string
}

// add adds a file's switch. The order of the files on the command line is unknown: a file that turns
// the switch on has precedence.
func (g *given) add(on *bool, where string) {
	if on != nil && (g.on == nil || *on) {
		*g = given{on, where}
	}
}

// check refuses a field that is on, by the switch or else in the file at.
func (g *given) check(flag, field, at, want string) error {
	switch {
	case g.on != nil && *g.on:
		return CheckConfiguration.Refuse(flag+" "+g.where, want)
	case g.on == nil && at != "":
		return CheckConfiguration.Refuse(field+": true in "+at, want)
	}
	return nil
}

// CheckPatterns refuses invalid patterns.
func (p *Places) CheckPatterns() error {
	for _, pattern := range p.FlagFiles {
		if _, err := filepath.Match(pattern, ""); err != nil {
			return refusal.Config("Kubelet.FlagFiles", refusal.Quote(pattern), "a pattern of path/filepath.Match")
		}
	}
	return nil
}

// eachFlagFile reads the files with flags, until look returns an error.
func (r *Rules) eachFlagFile(look func(where string, f *Flags) error) error {
	if err := r.CheckPatterns(); err != nil {
		return err
	}
	names := map[string]bool{}
	for _, pattern := range r.FlagFiles {
		paths, _ := filepath.Glob(pattern) // the only error is an invalid pattern
		for _, path := range paths {
			name := filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path)) // kubelet.service.d/10-kubeadm.conf
			if names[name] {
				continue
			}
			names[name] = true
			f, err := ReadFlags(path)
			if err == nil {
				err = look("in "+path, f)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// check checks a configuration and the switches that override it.
func (r *Rules) check(c *Configuration, rotate, serve given) error {
	err := rotate.check("--rotate-certificates", "rotateCertificates", c.RotateCertificates, wayRotate)
	if r.Serving {
		err = errors.Join(err, serve.check("--rotate-server-certificates", "serverTLSBootstrap", c.ServerTLSBootstrap, wayServe))
	}
	return err
}
