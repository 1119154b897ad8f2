//go:build !linux

package tpmsim

import "os/exec"

// endWithParent does nothing where the system has no parent-death signal.
func endWithParent(*exec.Cmd) {}
