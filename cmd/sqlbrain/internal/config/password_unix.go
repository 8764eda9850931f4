//go:build unix

package config

import (
	"os/exec"
	"syscall"
)

// endsWithItsProcesses has all processes that cmd starts end with its context. kill ends them earlier.
func endsWithItsProcesses(cmd *exec.Cmd) (kill func() error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd.Cancel
}
