//go:build linux

package zones

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/process"
)

// envRouter makes this program the router.
const envRouter = "SQLBRAIN_ZONES_ROUTER"

// network is the zones and the router between them. The kernel removes a zone with the last process that uses it.
type network struct {
	t      *testing.T
	zones  []harness.Place
	router *process.Process
	orders io.Writer
}

// address returns that of a zone, from 0.
func address(zone int) string { return fmt.Sprintf("10.77.0.%d", zone+1) }

// startNetwork makes the zones. It skips t where that is not possible.
func startNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{t: t}
	var devices []*os.File
	for i := range zones {
		device, namespace, err := makeZone(i)
		if err != nil {
			t.Skipf("zones need root, network namespaces, /dev/net/tun and the program ip: %v", err)
		}
		devices = append(devices, device)
		n.zones = append(n.zones, harness.Place{Address: address(i), Network: namespace})
		t.Cleanup(func() { require.NoError(t, errors.Join(device.Close(), namespace.Close())) })
	}
	// A real network does not wait for processors, so the router goes first.
	first := []string{"chrt", "--fifo", "1"}
	if out, err := exec.Command(first[0], append(first[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("the router needs the program chrt: %v %s", err, out)
	}
	cmd := exec.Command(first[0], append(first[1:], os.Args[0])...)
	cmd.Env, cmd.ExtraFiles, cmd.Stderr = append(os.Environ(), envRouter+"=1", "GOMAXPROCS=8"), devices, os.Stderr
	orders, err := cmd.StdinPipe()
	require.NoError(t, err)
	n.router, err = process.Launch(cmd, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.router.Kill()) })
	n.orders = orders
	// What connects to a zone from outside of it does so from within.
	harness.Dial = func(ctx context.Context, to string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(to)
		if err != nil {
			return nil, err
		}
		var from harness.Place
		if i := slices.IndexFunc(n.zones, func(z harness.Place) bool { return z.Address == host }); i >= 0 {
			from = n.zones[i]
		}
		return from.Dial(ctx, to)
	}
	mysql.RegisterDialContext("tcp", harness.Dial)
	n.set(near, -1)
	return n
}

// set makes all zones a round trip apart, and cuts one off, unless it is negative.
func (n *network) set(roundTrip time.Duration, cut int) {
	n.t.Helper()
	_, err := fmt.Fprintln(n.orders, int64(roundTrip/2), cut)
	require.NoError(n.t, err)
}

// processorTime returns what the router has taken.
func (n *network) processorTime() float64 {
	n.t.Helper()
	p, err := procfs.NewProc(n.router.ID())
	require.NoError(n.t, err)
	stat, err := p.Stat()
	require.NoError(n.t, err)
	return stat.CPUTime()
}

// makeZone returns the device to which a new zone sends what is not for itself, and the zone's namespace.
func makeZone(i int) (device, namespace *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never undone: the thread ends
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return
		}
		if device, err = openTUN(); err != nil {
			return
		}
		for _, args := range [][]string{
			{"link", "set", "lo", "up"},
			{"address", "add", address(i) + "/24", "dev", tun},
			{"link", "set", tun, "mtu", fmt.Sprint(packetSize), "txqueuelen", "10000", "up"},
		} {
			if out, failed := exec.Command("ip", args...).CombinedOutput(); failed != nil {
				err = fmt.Errorf("ip %s: %w: %s", args, failed, out)
				return
			}
		}
		namespace, err = os.Open("/proc/thread-self/ns/net")
	}()
	<-done
	return device, namespace, err
}

const (
	tun = "zones"
	// packetSize is as large as in clouds.
	packetSize = 9000
)

func openTUN() (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(tun)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	return os.NewFile(uintptr(fd), tun), err
}

// packet is to be delivered to a zone at a time.
type packet struct {
	bytes []byte
	to    int
	due   time.Time
}

// route is the router: it follows what network.set orders, until there is no more of it.
func route() {
	var delay, cut atomic.Int64
	cut.Store(-1)
	const firstFD, underWay = 3, 1 << 16
	for zone := range zones {
		packets := make(chan packet, underWay)
		go func() {
			runtime.LockOSThread()
			buf := make([]byte, packetSize)
			for {
				size, err := unix.Read(firstFD+zone, buf)
				const version4, lastOfDestination = 4, 19
				if err != nil && !errors.Is(err, unix.EINTR) {
					fmt.Fprintln(os.Stderr, "router:", err)
					return
				}
				if err != nil || size <= lastOfDestination || buf[0]>>4 != version4 {
					continue
				}
				due := time.Now().Add(time.Duration(delay.Load()))
				if to := int(buf[lastOfDestination]) - 1; to >= 0 && to < zones && to != zone {
					packets <- packet{slices.Clone(buf[:size]), to, due}
				}
			}
		}()
		go func() {
			runtime.LockOSThread()
			for p := range packets {
				// The runtime's timers are late by up to a millisecond.
				if wait := time.Until(p.due); wait > 0 {
					span := unix.NsecToTimespec(int64(wait))
					_ = unix.Nanosleep(&span, nil) // a signal may interrupt it
				}
				if away := int(cut.Load()); away != zone && away != p.to {
					_, _ = unix.Write(firstFD+p.to, p.bytes) // a network may lose packets
				}
			}
		}()
	}
	for {
		var d, c int64
		if _, err := fmt.Scanln(&d, &c); err != nil {
			return
		}
		delay.Store(d)
		cut.Store(c)
	}
}
