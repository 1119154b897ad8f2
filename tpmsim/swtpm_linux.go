package tpmsim

import (
	"os/exec"
	"syscall"
)

// endWithParent has the kernel kill the process when this one ends without having
// closed the TPM, for example when a test exceeds its time limit.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
