//go:build !linux

package kube

import (
	"syscall"
	"testing"
	"time"
)

// dieWithParent is a service of Linux.
func dieWithParent() *syscall.SysProcAttr { return nil }

// work is not known here.
func work(*testing.T) time.Duration { return 0 }
