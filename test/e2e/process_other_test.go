//go:build !linux

package e2e

import "syscall"

// dieWithParent is a service of Linux.
func dieWithParent() *syscall.SysProcAttr { return nil }
