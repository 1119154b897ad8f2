//go:build !linux

package controlplane

import "syscall"

// dieWithParent is a service of Linux.
func dieWithParent() *syscall.SysProcAttr { return nil }
