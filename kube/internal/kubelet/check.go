package kubelet

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/internal/nodename"
	"github.com/nodeattest/nodeattest/refusal"
)

// CheckConfiguration is the check that fails if a kubelet's configuration has it get
// certificates in its own way, without evidence. Got names the setting and where it is, Want
// says what to do.
const CheckConfiguration refusal.Check = "kubelet-configuration"

const (
	wayRotate = "the kubelet would use the plugin's certificate only to ask for one of its own, without evidence, and do the rest as anonymous: set rotateCertificates to false, or --rotate-certificates=false, which wins"
	wayBoot   = "the kubelet would ask for a certificate without evidence, and overwrite its kubeconfig: start it without this flag"
	wayServe  = "the kubelet would ask for serving certificates of its own beside those that are written for it: set serverTLSBootstrap to false"
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
	failed := []error{r.Check(), r.eachFlagFile(func(where string, f *Flags) error { return r.checkName(where, f) })}
	if !r.Processes {
		return errors.Join(failed...)
	}
	for pid, f := range Running() {
		where := "(kubelet, process " + strconv.Itoa(pid) + ")"
		if file, dir := cmp.Or(f.Config, r.ConfigFile), cmp.Or(f.ConfigDir, r.ConfigDir); file != r.ConfigFile || dir != r.ConfigDir {
			failed = append(failed, &refusal.Error{Check: CheckFile, Got: "--config=" + refusal.Quote(file) + " --config-dir=" + refusal.Quote(dir) + " " + where,
				Want: "what is looked at here, " + refusal.Quote(r.ConfigFile) + " and " + refusal.Quote(r.ConfigDir)})
		}
		failed = append(failed, r.checkProcess(where, f, r.ConfigFile, r.ConfigDir), r.checkName(where, f))
	}
	return errors.Join(failed...)
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
	name := nodename.Lower(strings.TrimSpace(f.Hostname))
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
	return r.check(c, f.Rotate, where)
}

// checkFiles looks at the configured files.
func (r *Rules) checkFiles() error {
	c, err := ReadConfiguration(r.ConfigFile, r.ConfigDir)
	if err != nil {
		return err
	}
	var rotate *bool
	var rotateAt string
	if err := r.eachFlagFile(func(where string, f *Flags) error {
		if f.Rotate != nil && (rotate == nil || *f.Rotate) { // which file comes last on the command line is not known here
			rotate, rotateAt = f.Rotate, where
		}
		return checkBootstrap(where, f)
	}); err != nil {
		return err
	}
	return r.check(c, rotate, rotateAt)
}

// eachFlagFile reads the files with flags, until look returns an error.
func (r *Rules) eachFlagFile(look func(where string, f *Flags) error) error {
	names := map[string]bool{}
	for _, pattern := range r.FlagFiles {
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

// check looks at a configuration and at the switch that wins over it.
func (r *Rules) check(c *Configuration, rotate *bool, rotateAt string) error {
	switch {
	case rotate != nil && *rotate:
		return goesAround("--rotate-certificates "+rotateAt, wayRotate)
	case rotate == nil && c.RotateCertificates != "":
		return goesAround("rotateCertificates: true in "+c.RotateCertificates, wayRotate)
	case c.ServerTLSBootstrap != "" && r.Serving:
		return goesAround("serverTLSBootstrap: true in "+c.ServerTLSBootstrap, wayServe)
	}
	return nil
}
