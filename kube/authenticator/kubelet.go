package authenticator

import "log/slog"

// Kubelet says where to look for the kubelet's own configuration. The zero value looks
// nowhere.
type Kubelet struct {
	// ConfigFile is the file of --config, a KubeletConfiguration in YAML or JSON; it may be
	// missing. ConfigDir is the folder of --config-dir, whose *.conf files override it. Of
	// these and of FlagFiles, only its owner may be able to write to a file, who is this
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
}

// warnKubelet logs if the kubelet is configured to get certificates by itself.
func (a *Authenticator) warnKubelet() {
	a.warnOnce("the kubelet's configuration bypasses the certificates", a.kubelet.CheckRunning(), slog.String("folder", a.store.Path("")))
}
