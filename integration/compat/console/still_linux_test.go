package console

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// envStill names the program that this one becomes once it cannot see the network change.
const envStill = "STILL_PROGRAM"

// still returns how to start a program that does not learn of changes of network interfaces, and
// the environment for it. Chromium breaks off all requests when an interface comes or goes, with
// ERR_NETWORK_CHANGED, and tests of containers and partitions make and remove interfaces.
func still(program string) (path string, env []string) {
	self, err := os.Executable()
	if err != nil {
		return program, nil
	}
	return self, []string{envStill + "=" + program}
}

// becomeStill replaces this process by the program that still was asked for, if it was.
func becomeStill() {
	program := os.Getenv(envStill)
	if program == "" {
		return
	}
	runtime.LockOSThread() // the filter is the thread's, and the new program's
	err := forbidNetlink()
	if err == nil {
		err = syscall.Exec(program, append([]string{program}, os.Args[1:]...), os.Environ()) // #nosec G204 -- a test's own choice
	}
	fmt.Fprintln(os.Stderr, program, err)
	os.Exit(1)
}

// forbidNetlink makes socket(AF_NETLINK) fail, the only source of such news, in this thread and what
// it executes.
func forbidNetlink() error {
	const number, family = 0, 16 // offsets in struct seccomp_data of the call's number and its first argument
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.SYS_SOCKET},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: family},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.AF_NETLINK},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0,
		0); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return nil
}
