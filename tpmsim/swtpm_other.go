//go:build !linux

package tpmsim

import "os/exec"

// endWithParent does nothing on systems without a parent-death signal.
func endWithParent(*exec.Cmd) {}
