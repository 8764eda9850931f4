package sqlite

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A thread in a system call keeps its right to run Go code until Go's monitor thread takes that away, some
// 100 µs later. While a file is flushed, which takes longer, a process with few processors hardly reads any
// request for the next commit. So a flusher has a file flushed by a thread of the kernel (io_submit), which then raises
// an eventfd. Go's poller waits for that as for a socket.
type flusher struct {
	queue  uintptr  // of the kernel
	raised *os.File // the eventfd
	order  flushOrder
	orders [1]*flushOrder
	result flushResult
	count  [8]byte // what is read from the eventfd
}

// flushOrder is the kernel's struct iocb.
type flushOrder struct {
	_          uint64 // returned with the result
	_, _       uint32 // set by the kernel; options
	operation  uint16
	_          int16 // priority
	file       uint32
	_, _, _, _ uint64 // for reads and writes
	flags      uint32
	event      uint32
}

// flushResult is the kernel's struct io_event.
type flushResult struct {
	_, _     uint64
	negative int64 // an error's number, negated; 0 if the file was flushed
	_        int64
}

const (
	flushOfData = 3 // IOCB_CMD_FDSYNC
	raiseEvent  = 1 // IOCB_FLAG_RESFD
)

// flushers has the flushers that are not in use. There are never more than files that were flushed at the
// same time, and they stay.
var flushers struct {
	sync.Mutex
	idle []*flusher
}

// errNotBegun says that the kernel does not flush a file by itself, or has no room for more orders
// (fs.aio-max-nr). Nothing happened.
var errNotBegun = errors.New("sqlstore: the kernel took no order to flush a file")

// flushByKernel flushes the data of a file, and its size if that changed, while other goroutines use the
// thread. After any error but errNotBegun it is unknown what was flushed.
func flushByKernel(descriptor int) error {
	f, err := takeFlusher()
	if err != nil {
		return err
	}
	if err := f.begin(descriptor); err != nil {
		f.release()
		return err
	}
	if err := f.wait(); err != nil {
		return err // and leave f, which may have a result later
	}
	defer f.release()
	return f.result.outcome()
}

func takeFlusher() (*flusher, error) {
	flushers.Lock()
	defer flushers.Unlock()
	n := len(flushers.idle)
	if n == 0 {
		return newFlusher()
	}
	f := flushers.idle[n-1]
	flushers.idle = flushers.idle[:n-1]
	return f, nil
}

func (f *flusher) release() {
	flushers.Lock()
	defer flushers.Unlock()
	flushers.idle = append(flushers.idle, f)
}

func newFlusher() (*flusher, error) {
	f := &flusher{}
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, 1, address(&f.queue), 0); errno != 0 {
		return nil, errNotBegun
	}
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, f.queue, 0, 0)
		return nil, errNotBegun
	}
	f.raised = os.NewFile(uintptr(event), "eventfd")
	f.order.operation, f.order.flags, f.order.event = flushOfData, raiseEvent, uint32(event) // #nosec G115 -- a descriptor
	f.orders[0] = &f.order
	return f, nil
}

// begin gives the order. The kernel does not wait for the disk there.
func (f *flusher) begin(descriptor int) error {
	f.order.file = uint32(descriptor) // #nosec G115 -- a descriptor
	if _, _, errno := unix.RawSyscall(unix.SYS_IO_SUBMIT, f.queue, 1, address(&f.orders)); errno != 0 {
		return errNotBegun
	}
	return nil
}

// wait waits for the result. If the eventfd cannot be read, a thread waits in io_getevents.
func (f *flusher) wait() error {
	_, _ = f.raised.Read(f.count[:])
	for {
		switch _, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, f.queue, 1, 1, address(&f.result), 0, 0); errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return fmt.Errorf("sqlstore: result of a flush: %w", errno)
		}
	}
}

// outcome returns the error that the kernel met, a unix.Errno.
func (r flushResult) outcome() error {
	if r.negative == 0 {
		return nil
	}
	return unix.Errno(-r.negative) // #nosec G115 -- a number of an error
}

// address returns the address of v, which must be on the heap: things there do not move.
func address[T any](v *T) uintptr {
	return uintptr(unsafe.Pointer(v)) // #nosec G103 -- for system calls
}
