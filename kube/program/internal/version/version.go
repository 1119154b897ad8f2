// Package version has the version of the program, as Go has noted it in the build.
package version

import "runtime/debug"

// Of returns the version of the program's main module, such as "v0.1.0", a pseudo-version of a commit, or
// "(devel)"; "unknown" in a program that was built without modules.
func Of() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}
