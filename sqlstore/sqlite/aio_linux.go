package sqlite

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Flushing by a thread of the kernel; docs/performance.md says what it gives, when it is used and what
// it falls back to. The names are those of linux/aio_abi.h.
//
// A thread in a system call keeps its right to run Go code until Go's monitor thread takes that away,
// some 100 µs later. A flush takes longer, and a process with few processors then hardly reads any
// request for the next commit. io_submit returns at once, and the kernel then raises an eventfd, for
// which Go's poller waits as for a socket.
type aioContext struct {
	sync.Mutex         // held during a flush
	id         uintptr // aio_context_t
	eventfd    *os.File
	iocb       iocb
	iocbs      [1]*iocb
	event      ioEvent
	count      [8]byte // what is read from eventfd
	err        error   // why there is none, or none any longer
}

type iocb struct {
	_          uint64 // aio_data
	_, _       uint32 // aio_key, aio_rw_flags
	opcode     uint16
	_          int16 // aio_reqprio
	fildes     uint32
	_, _, _, _ uint64 // aio_buf, aio_nbytes, aio_offset, aio_reserved2
	flags      uint32
	resfd      uint32
}

// ioEvent is struct io_event.
type ioEvent struct {
	_, _ uint64 // data, obj
	res  int64  // an error's number, negated; 0 if the file was flushed
	_    int64
}

const (
	iocbCmdFdsync = 3
	iocbFlagResfd = 1
)

// errNotBegun says that the kernel does not flush a file by itself, has no room for more contexts
// (fs.aio-max-nr), or is flushing another file. Nothing happened.
var errNotBegun = errors.New("sqlite: the kernel does not flush the file by itself")

// aio is the process's only context: one file is written to.
var aio = sync.OnceValue(newAIOContext)

func newAIOContext() *aioContext {
	a := &aioContext{err: errNotBegun}
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, 1, address(&a.id), 0); errno != 0 {
		return a
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return a
	}
	a.eventfd = os.NewFile(uintptr(fd), "eventfd")
	a.iocb.opcode, a.iocb.flags = iocbCmdFdsync, iocbFlagResfd
	a.iocb.resfd = uint32(fd) // #nosec G115 -- a descriptor
	a.iocbs[0], a.err = &a.iocb, nil
	return a
}

// flushByKernel flushes the data of a file, and its size if that changed, while other goroutines use
// the thread. After any error but errNotBegun it is unknown what was flushed.
func flushByKernel(descriptor int) error { return aio().flush(descriptor) }

func (a *aioContext) flush(descriptor int) error {
	if !a.TryLock() {
		return errNotBegun
	}
	defer a.Unlock()
	if a.err != nil {
		return a.err
	}
	a.iocb.fildes = uint32(descriptor) // #nosec G115 -- a descriptor
	if _, _, errno := unix.RawSyscall(unix.SYS_IO_SUBMIT, a.id, 1, address(&a.iocbs)); errno != 0 {
		return errNotBegun
	}
	_, _ = a.eventfd.Read(a.count[:]) // if that fails, the thread waits in io_getevents
	for {
		switch _, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, a.id, 1, 1, address(&a.event), 0, 0); errno {
		case 0:
			return a.event.outcome()
		case unix.EINTR:
		default:
			a.err = errNotBegun // for the next one: the context may have this one's event later
			return fmt.Errorf("sqlite: result of a flush: %w", errno)
		}
	}
}

// outcome returns the error that the kernel met, a unix.Errno.
func (e ioEvent) outcome() error {
	if e.res == 0 {
		return nil
	}
	return unix.Errno(-e.res) // #nosec G115 -- a number of an error
}

// address returns the address of v, which must be on the heap: things there do not move.
func address[T any](v *T) uintptr {
	return uintptr(unsafe.Pointer(v)) // #nosec G103 -- for system calls
}
