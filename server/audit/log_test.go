package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestMain(m *testing.M) { eventually.NoLeaks(m) }

func newTestLog(t *testing.T, to string, change ...func(*Log)) (*Log, *eventually.Log) {
	t.Helper()
	var process eventually.Log
	l, err := newLog(Config{To: to, Logger: slog.New(slog.NewJSONHandler(&process, nil)),
		Registerer: prometheus.NewRegistry()})
	require.NoError(t, err)
	l.maxWait = time.Hour // a slow disk is not what most tests are about
	for _, c := range change {
		c(l)
	}
	l.start(slog.String("version", "v1"))
	t.Cleanup(l.Close)
	return l, &process
}

// closeLog closes l, and waits until its writer has ended, however long that takes.
func closeLog(l *Log) {
	l.Close()
	<-l.stopped
}

// linesOf returns the lines of a file.
func linesOf(t *testing.T, path string) (lines []map[string]any) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(content)) {
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &fields), line)
		lines = append(lines, fields)
	}
	return lines
}

func kinds(lines []map[string]any) (out []string) {
	for _, line := range lines {
		out = append(out, line["event"].(string))
	}
	return out
}

var from = Source{Name: "192.0.2.1"}

func event() Event { return Event{Method: "/m", User: "ann", Remote: "192.0.2.1:5", Code: "OK"} }

func TestSuccessfulChangesAreWrittenBeforeTheyAreAnswered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, _ := newTestLog(t, path)
	l.Record(Change, from, true, func() Event {
		return Event{
			Method: "/etcdserverpb.Auth/UserAdd", User: "root", Certificate: "cn", Remote: "192.0.2.1:5", RequestID: "1f",
			Code:   "OK",
			Target: []slog.Attr{Text("name", "ann"), List("urls", []string{"a", "b"})},
		}
	})
	lines := linesOf(t, path)
	require.Equal(t, []string{"start", "change"}, kinds(lines))
	require.Equal(t, "v1", lines[0]["version"])
	_, err := time.Parse(time.RFC3339Nano, lines[1]["time"].(string))
	require.NoError(t, err)
	delete(lines[1], "time")
	require.Equal(t, map[string]any{
		"event": "change", "method": "/etcdserverpb.Auth/UserAdd", "user": "root", "certificate": "cn",
		"remote": "192.0.2.1:5", "request_id": "1f", "code": "OK",
		"target": map[string]any{"name": "ann", "urls": []any{"a", "b"}},
	}, lines[1])
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fileMode, info.Mode().Perm())
	closeLog(l)
	require.Equal(t, []string{"start", "change", "stop"}, kinds(linesOf(t, path)))
	l.Record(Change, from, true, event) // must not block or panic
}

func TestLinesAreBoundedAndCannotBeForged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, _ := newTestLog(t, path)
	long := strings.Repeat("\x00\n\"\xff\u202e", 100_000)
	many := make([]string, 10_000)
	attrs := make([]slog.Attr, 1000)
	for i := range many {
		many[i] = long
	}
	for i := range attrs {
		attrs[i] = List(fmt.Sprint(i), many)
	}
	l.Record(Change, from, true, func() Event {
		return Event{Method: "/m", User: long, Certificate: long, Remote: long, Error: long, Target: attrs}
	})
	lines := linesOf(t, path)
	require.Len(t, lines, 2)
	user := lines[1]["user"].(string)
	require.True(t, strings.HasPrefix(user, `\x00\n\"\xff\u202e`), user)
	require.True(t, strings.HasSuffix(user, "…(700000 bytes)"), user)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Less(t, len(content), 1<<20)
}

// still returns a change of a log whose clock stands, and what moves it on.
func still() (change func(*Log), pass func(time.Duration)) {
	var mu sync.Mutex
	now := time.Now()
	change = func(l *Log) { l.now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now } }
	return change, func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
}

func TestFloodsAreCountedAndChangesGetThrough(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	clock, pass := still()
	l, _ := newTestLog(t, path, clock)
	described := 0
	for range sourceBurst + 5000 {
		l.Record(Denied, from, false, func() Event { described++; return event() })
	}
	require.Equal(t, sourceBurst, described, "what is suppressed costs nothing")
	l.Record(LoginFailed, from, false, event) // another kind has its own limit
	for range 3 * sourceBurst {
		l.Record(Change, from, true, event)
	}
	pass(time.Second)
	for range 2 * sourceRate {
		l.Record(Denied, from, false, event)
	}
	closeLog(l)
	count := map[string]int{}
	var suppressions float64
	for _, line := range linesOf(t, path) {
		count[line["event"].(string)]++
		if line["event"] == "suppressed" {
			require.Equal(t, "denied", line["of"])
			require.NotEmpty(t, line["since"])
			require.Equal(t, []any{from.Name}, line["by"])
			suppressions += line["count"].(float64)
		}
	}
	require.Equal(t, sourceBurst+sourceRate, count["denied"])
	require.EqualValues(t, 5000+sourceRate, suppressions)
	require.Equal(t, 3*sourceBurst, count["change"])
	require.Equal(t, 1, count["login_failed"])
	require.EqualValues(t, 5000+sourceRate, testutil.ToFloat64(l.suppressions.WithLabelValues("denied")))
}

func TestAFloodDoesNotHideOtherSources(t *testing.T) {
	clock, pass := still()
	l, _ := newTestLog(t, filepath.Join(t.TempDir(), "audit.log"), clock)
	recorded := func(s Source) (is bool) {
		// Not by Record: in this test the queue would be full.
		return l.admits(Denied, s)
	}
	flood := func(addresses int) {
		for range 10 * sourceBurst {
			for i := range addresses {
				recorded(Source{Name: fmt.Sprint("198.51.100.", i)})
			}
		}
	}
	flood(300)
	require.True(t, recorded(Source{Name: "192.0.2.1"}), "of an address that was quiet")
	for range 2 * sourceBurst {
		recorded(Source{Name: "eve", Authenticated: true})
	}
	require.False(t, recorded(Source{Name: "eve", Authenticated: true}))
	require.True(t, recorded(Source{Name: "ann", Authenticated: true}))
	require.True(t, recorded(Source{Name: "198.51.100.1", Authenticated: true}), "a user of that name is no address")
	pass(time.Hour)
	lines := 0
	for i := range 10 * maxSources {
		if recorded(Source{Name: fmt.Sprint(i)}) {
			lines++
		}
	}
	require.Equal(t, addressBurst, lines)
	limit := l.limits[Denied]
	require.Equal(t, maxSources, limit.addresses.Len())
	require.Equal(t, 3, limit.users.Len())
	require.Len(t, limit.by, maxList)
}

func TestFileIsReopenedAfterARotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, _ := newTestLog(t, path)
	require.NoError(t, os.Rename(path, path+".1"))
	l.Record(Change, from, true, event)
	require.Equal(t, []string{"start"}, kinds(linesOf(t, path+".1")))
	require.Equal(t, []string{"change"}, kinds(linesOf(t, path)))
	require.NoError(t, os.Truncate(path, 0)) // copytruncate
	l.Record(Change, from, true, event)
	require.Equal(t, []string{"change"}, kinds(linesOf(t, path)))
}

// A disk that is full, and has room again.
func TestChangesGoToTheProcessLogWhileTheFileCannotBeWritten(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full here")
	}
	path := filepath.Join(t.TempDir(), "audit.log")
	l, process := newTestLog(t, path)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink("/dev/full", path))
	for range 3 {
		l.Record(Change, from, true, event)
	}
	require.Equal(t, 1.0, testutil.ToFloat64(l.state))
	require.Equal(t, 3.0, testutil.ToFloat64(l.failures.WithLabelValues(fateLogged)))
	require.Equal(t, 3, strings.Count(process.String(), `"msg":"audit"`))
	require.Equal(t, 1, strings.Count(process.String(), "the audit log cannot be written"), "it complains once")
	require.Contains(t, process.String(), "no space left")

	require.NoError(t, os.Remove(path))
	eventually.True(t, "the file to be written again", func() bool { return testutil.ToFloat64(l.state) == 0 })
	l.Record(Change, from, true, event)
	lines := linesOf(t, path)
	require.Equal(t, []string{"resumed", "change"}, kinds(lines))
	require.EqualValues(t, 3, lines[0]["missing"])
}

// stuck is a sink that does not answer until it is released.
type stuck struct {
	slog.Handler
	release chan struct{}
}

func (s stuck) Handle(context.Context, slog.Record) error { <-s.release; return errors.New("stuck") }

func TestSilentSinkDelaysRequestsForABoundedTime(t *testing.T) {
	release := make(chan struct{})
	path := filepath.Join(t.TempDir(), "audit.log")
	clock, _ := still()
	l, process := newTestLog(t, path, func(l *Log) {
		l.maxWait = time.Millisecond
		l.sink = stuck{l.sink, release}
		clock(l) // else more than sourceBurst are admitted, the longer the more
	})
	for range queueLength {
		l.Record(Denied, from, false, event) // never waits
	}
	for range queueLength + 10 { // each waits for maxWait, the last ones go to the process log
		l.Record(Change, from, true, event)
	}
	require.Contains(t, process.String(), `"msg":"audit"`)
	require.NotZero(t, testutil.ToFloat64(l.failures.WithLabelValues(fateLogged)))
	close(release)
	closeLog(l)
	require.EqualValues(t, sourceBurst, testutil.ToFloat64(l.failures.WithLabelValues(fateLost)))
}

func TestProcessLogAsAuditLogIgnoresItsLevel(t *testing.T) {
	var process eventually.Log
	l, err := Open(Config{To: ToLog, Logger: slog.New(slog.NewTextHandler(&process,
		&slog.HandlerOptions{Level: slog.LevelError}))})
	require.NoError(t, err)
	l.Record(Change, from, true, event)
	closeLog(l)
	require.Contains(t, process.String(), "msg=audit event=change method=/m user=ann")
}

func TestFileThatCannotBeOpenedIsAnError(t *testing.T) {
	_, err := Open(Config{To: filepath.Join(t.TempDir(), "none", "audit.log"), Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "audit log: open ")
	l, err := Open(Config{To: Off})
	require.NoError(t, err)
	l.Record(Change, from, true, nil)
	l.Close()
}
