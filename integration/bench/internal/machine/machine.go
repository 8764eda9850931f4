// Package machine says what figures were measured on.
package machine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Machine holds the properties of the machine on which figures depend.
type Machine struct {
	Cores      int     `json:"cores"`
	Processor  string  `json:"processor"`
	MemoryGiB  float64 `json:"memory_gib"`
	System     string  `json:"system"` // kernel and architecture
	FileSystem string  `json:"file_system"`
	// Fsync is how long writing 4 KiB and flushing them takes where the data is, in
	// milliseconds.
	FsyncP50 float64 `json:"fsync_p50_ms"`
	FsyncP99 float64 `json:"fsync_p99_ms"`
}

// Look describes this machine; dir is where the data is going to be. Linux only.
func Look(dir string) (Machine, error) {
	m := Machine{Cores: runtime.NumCPU()}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return m, err
	}
	if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
		m.Processor = cpus[0].ModelName
	}
	if memory, err := fs.Meminfo(); err == nil && memory.MemTotalBytes != nil {
		m.MemoryGiB = float64(*memory.MemTotalBytes) / (1 << 30)
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return m, err
	}
	text := func(b []byte) string { return string(b[:bytes.IndexByte(b, 0)]) }
	m.System = fmt.Sprintf("%s %s %s", text(name.Sysname[:]), text(name.Release[:]), text(name.Machine[:]))
	if mounts, err := procfs.GetMounts(); err == nil {
		m.FileSystem = fileSystem(mounts, dir)
	}
	m.FsyncP50, m.FsyncP99, err = fsyncLatency(dir)
	return m, err
}

// fileSystem is the type of the mount that dir is on.
func fileSystem(mounts []*procfs.MountInfo, dir string) string {
	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil {
		return ""
	}
	device := fmt.Sprintf("%d:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev))
	for _, mount := range mounts {
		if mount.MajorMinorVer == device {
			return mount.FSType
		}
	}
	return ""
}

// fsyncLatency writes and flushes pages one after the other.
func fsyncLatency(dir string) (p50, p99 float64, err error) {
	f, err := os.CreateTemp(dir, "fsync-")
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	page := bytes.Repeat([]byte{0xa5}, 4096)
	var took []time.Duration
	for range 200 {
		began := time.Now()
		if _, err := f.Write(page); err != nil {
			return 0, 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, 0, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return ms(took[len(took)/2]), ms(took[len(took)*99/100]), nil
}

// Load is the machine's load of the last minute.
func Load() float64 {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	load, err := fs.LoadAvg()
	if err != nil {
		return 0
	}
	return load.Load1
}
