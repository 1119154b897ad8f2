package authenticator

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

// warnKubelet logs what is wrong with the kubelet, each text once in a row.
func (a *Authenticator) warnKubelet() {
	why := ""
	if err := a.kubelet.CheckRunning(); err != nil {
		why = err.Error()
	}
	if before, _ := a.said.Swap("the kubelet", why); why != "" && before != why {
		a.c.Log.Warn("a kubelet does not use the certificates that are kept here", "why", why)
	}
}
