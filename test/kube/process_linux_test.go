package kube

import "syscall"

// dieWithParent has the kernel end a child whose parent was killed, for example by
// the time limit of go test.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
