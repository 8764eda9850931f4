package system

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// The processors of an Environment with OneCore.
const (
	serverCore = 0
	clientCore = 1
)

// UseClientCore keeps this process, which is the client, on a processor that no server with OneCore uses, until
// the returned function is called. It fails if the machine cannot give servers and client a processor each.
func UseClientCore() (undo func() error, err error) {
	if _, err := exec.LookPath("taskset"); err != nil {
		return nil, fmt.Errorf("taskset is missing, which keeps programs on a processor (Debian: apt-get install util-linux): %w", err)
	}
	var allowed, client unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil, err
	}
	if !allowed.IsSet(serverCore) || !allowed.IsSet(clientCore) {
		return nil, errors.New("server and client need processors 0 and 1, and this process may not use both")
	}
	client.Set(clientCore)
	procs := runtime.GOMAXPROCS(1)
	return func() error {
		runtime.GOMAXPROCS(procs)
		return useCores(&allowed)
	}, useCores(&client)
}

// useCores moves all threads of this process. Those that it starts later are where the one is that starts them.
func useCores(cores *unix.CPUSet) error {
	for range 2 { // also what started while the others were moved
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil {
				return err
			}
			if err := unix.SchedSetaffinity(id, cores); err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
				return err
			}
		}
	}
	return nil
}

// OnServerCore returns the command that runs a server's or a database's program. With OneCore, that is on
// one processor. The process keeps its id.
func (e *Environment) OnServerCore(name string, args []string) (string, []string) {
	if e.OneCore == 0 {
		return name, args
	}
	return "taskset", append([]string{"-c", strconv.Itoa(serverCore), "env", "GOMAXPROCS=" + strconv.Itoa(e.OneCore),
		name}, args...)
}
