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

// CheckConfiguration is the check that fails if a kubelet's configuration has it get
// certificates in its own way, without evidence. Got names the setting and where it is, Want
// says what to do.
const CheckConfiguration refusal.Check = "kubelet-configuration"

const (
	wayRotate = "the kubelet would use the plugin's certificate only to ask for one of its own, without evidence, and do the rest as anonymous: set rotateCertificates to false, or --rotate-certificates=false, which wins"
	wayBoot   = "the kubelet would ask for a certificate without evidence, and overwrite its kubeconfig: start it without this flag"
	wayServe  = "the kubelet would ask for serving certificates of its own beside those that are written for it: set serverTLSBootstrap to false, or --rotate-server-certificates=false, which wins"
)

// Places say where to look for a kubelet's configuration: what package authenticator's type
// Kubelet says of them.
type Places struct {
	ConfigFile, ConfigDir string
	FlagFiles             []string
	Parent                bool
	Processes             bool
}

// Rules are what a kubelet has to keep.
type Rules struct {
	Places
	// Serving says that serving certificates are written for the kubelet, which then must not
	// ask for its own.
	Serving bool
	// NodeName is what the kubelet should call its node; "" for any name.
	NodeName string
}

// Check looks at the parent, or else at the files. The check of the error is
// [CheckConfiguration] or [CheckFile].
func (r *Rules) Check() error {
	if r.Parent {
		if f := Process(os.Getppid()); f != nil {
			return r.checkProcess("(the kubelet that asks)", f, cmp.Or(f.Config, r.ConfigFile), cmp.Or(f.ConfigDir, r.ConfigDir))
		}
	}
	return r.checkFiles()
}

// CheckRunning is Check, but also looks at the node's name and at the kubelets that are
// running. It opens no file that a process names: a kubelet with another file than ConfigFile
// is an error.
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

// checkPaths looks whether a kubelet has other files than those that are looked at.
func (r *Rules) checkPaths(where, file, dir string) error {
	file, dir = cmp.Or(file, r.ConfigFile), cmp.Or(dir, r.ConfigDir)
	if samePath(file, r.ConfigFile) && samePath(dir, r.ConfigDir) {
		return nil
	}
	return &refusal.Error{Check: CheckFile, Got: "--config=" + refusal.Quote(file) + " --config-dir=" + refusal.Quote(dir) + " " + where,
		Want: "what is looked at here, " + refusal.Quote(r.ConfigFile) + " and " + refusal.Quote(r.ConfigDir) + ": set config and configDir of the kubelet-authenticator"}
}

// asWritten is a file's name in a unit, or "" if systemd or a shell fills it in.
func asWritten(path string) string {
	if strings.ContainsAny(path, "$%") {
		return ""
	}
	return path
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

func goesAround(got, want string) error {
	return &refusal.Error{Check: CheckConfiguration, Got: got, Want: want}
}

// checkBootstrap looks whether a kubelet would ask for its first certificate.
func checkBootstrap(where string, f *Flags) error {
	if f.Bootstrap == "" {
		return nil
	}
	return goesAround("--bootstrap-kubeconfig="+refusal.Text(f.Bootstrap)+" "+where, wayBoot)
}

// checkName looks whether a kubelet gives its node another name, unless systemd or a shell fills
// it in. The name is in lower case then, as the kubelet has it.
func (r *Rules) checkName(where string, f *Flags) error {
	name := strings.ToLower(strings.TrimSpace(f.Hostname))
	if name == "" || r.NodeName == "" || name == r.NodeName || strings.ContainsAny(name, "$%") {
		return nil
	}
	return goesAround("--hostname-override="+refusal.Text(name)+" "+where,
		r.NodeName+", for which certificates are kept here: set nodeName of the kubelet-authenticator to the kubelet's name, or take the flag away")
}

// checkProcess looks at a kubelet's flags and at its files.
func (r *Rules) checkProcess(where string, f *Flags, file, dir string) error {
	if f.Cut {
		return &refusal.Error{Check: CheckFile, Got: "longer arguments " + where, Want: "at most 128 KiB"}
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

// checkFiles looks at the configured files.
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

// given is a switch on a command line, which wins over the files; on is nil if it is not there.
type given struct {
	on    *bool
	where string
}

// add adds a file's switch. Which file comes last on the command line is not known here: one that
// turns it on counts.
func (g *given) add(on *bool, where string) {
	if on != nil && (g.on == nil || *on) {
		*g = given{on, where}
	}
}

// check returns an error if a field is on, by the switch or else by the file at.
func (g *given) check(flag, field, at, want string) error {
	switch {
	case g.on != nil && *g.on:
		return goesAround(flag+" "+g.where, want)
	case g.on == nil && at != "":
		return goesAround(field+": true in "+at, want)
	}
	return nil
}

// CheckPatterns refuses patterns that match nothing.
func (p *Places) CheckPatterns() error {
	for _, pattern := range p.FlagFiles {
		if _, err := filepath.Match(pattern, ""); err != nil {
			return refusal.Config("Kubelet.FlagFiles", refusal.Quote(pattern), "a pattern")
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
		paths, _ := filepath.Glob(pattern) // the only error is that of the pattern
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

// check looks at a configuration and at the switches that win over it.
func (r *Rules) check(c *Configuration, rotate, serve given) error {
	err := rotate.check("--rotate-certificates", "rotateCertificates", c.RotateCertificates, wayRotate)
	if r.Serving {
		err = errors.Join(err, serve.check("--rotate-server-certificates", "serverTLSBootstrap", c.ServerTLSBootstrap, wayServe))
	}
	return err
}
