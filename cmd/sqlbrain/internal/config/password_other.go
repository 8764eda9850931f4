//go:build !unix

package config

import "os/exec"

func endsWithItsProcesses(cmd *exec.Cmd) (kill func() error) { return cmd.Cancel }
