package authenticator

import "log/slog"

// Kubelet has the paths of the kubelet's own configuration. The zero value checks nothing.
type Kubelet struct {
	// ConfigFile is the file of --config, a KubeletConfiguration in YAML or JSON; it may be
	// missing. ConfigDir is the folder of --config-dir, whose *.conf files override it. Only
	// this process's user and root may be able to write to these files and to FlagFiles.
	ConfigFile, ConfigDir string
	// FlagFiles are files that contain flags of the kubelet, as patterns of
	// path/filepath.Match: environment files and systemd units. If a file hides another of the
	// same name by being in an earlier folder, only the first is read.
	FlagFiles []string
	// Parent checks the process that started this one, if that is a kubelet, as it is for a
	// plugin, and the files that its arguments name. Linux only.
	Parent bool
	// Processes checks the kubelets that run on this machine as this process's user, outside of
	// containers. Linux only, and not used by the plugin.
	Processes bool
}

// warnKubelet logs if the kubelet is configured to get certificates by itself.
func (a *Authenticator) warnKubelet() {
	a.warnOnce("the kubelet's configuration bypasses the certificates", a.kubelet.CheckRunning(), slog.String("folder", a.store.Path("")))
}
