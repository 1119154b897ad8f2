//go:build !linux

package kube

import "syscall"

// dieWithParent is a service of Linux.
func dieWithParent() *syscall.SysProcAttr { return nil }
