package tpmsim

import (
	"os/exec"
	"syscall"
)

// endWithParent has the kernel kill the process when this one ends without having
// closed the TPM: a test that ran into its time limit, for example.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
