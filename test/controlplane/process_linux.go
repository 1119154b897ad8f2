package controlplane

import "syscall"

// dieWithParent has the kernel end a child whose parent was killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
