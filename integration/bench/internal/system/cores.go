package system

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"

	"golang.org/x/sys/unix"
)

// The processors of an Environment with OneCore.
const (
	serverCore = "0"
	clientCore = "1"
)

// CheckCores returns an error if this machine cannot give servers and client a processor each.
func CheckCores() error {
	if _, err := exec.LookPath("taskset"); err != nil {
		return fmt.Errorf("taskset is missing, which keeps programs on a processor (Debian: apt-get install util-linux): %w", err)
	}
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return err
	}
	if !allowed.IsSet(0) || !allowed.IsSet(1) {
		return errors.New("server and client need processors 0 and 1, and this process may not use both")
	}
	return nil
}

// OnServerCore returns the command that runs a server's or a database's program. With OneCore, that is on
// one processor. The process keeps its id.
func (e *Environment) OnServerCore(name string, args []string) (string, []string) {
	if e.OneCore == 0 {
		return name, args
	}
	return "taskset", append([]string{"-c", serverCore, "env", "GOMAXPROCS=" + strconv.Itoa(e.OneCore), name}, args...)
}

// OnClientCore returns the command that runs a client's program. With OneCore, that is on a processor that
// no server uses.
func (e *Environment) OnClientCore(name string, args []string) (string, []string) {
	if e.OneCore == 0 {
		return name, args
	}
	return "taskset", append([]string{"-c", clientCore, name}, args...)
}
