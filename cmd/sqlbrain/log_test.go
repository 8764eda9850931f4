package main

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestTextsOfTheLogAreBounded(t *testing.T) {
	long := strings.Repeat("ä", maxLoggedText)
	for _, format := range []string{"json", "text"} {
		p := newProgram(t, "--log-format", format)
		var out bytes.Buffer
		p.stderr = &out
		log, closeLog, err := p.newLogger()
		require.NoError(t, err)
		log.WithGroup("g").With("user", long).Warn("short", "error", errors.New(long), "names", []string{"short", long},
			"fits", strings.Repeat("b", maxLoggedText))
		require.NoError(t, closeLog())
		line := out.String()
		require.Less(t, len(line), 5*maxLoggedText, format)
		require.Equal(t, 3, strings.Count(line, "… (2048 bytes more)"), format)
		require.Contains(t, line, strings.Repeat("b", maxLoggedText), format)
	}
}

func TestDurationsOfTheLogHaveUnits(t *testing.T) {
	for format, want := range map[string]string{"json": `"took":"1.5s"`, "text": "took=1.5s"} {
		p := newProgram(t, "--log-format", format)
		var out bytes.Buffer
		p.stderr = &out
		log, closeLog, err := p.newLogger()
		require.NoError(t, err)
		log.Warn("slow", "took", 1500*time.Millisecond)
		require.NoError(t, closeLog())
		require.Contains(t, out.String(), want)
	}
}

func TestKeysOfRequestsAreBoundedInTheLog(t *testing.T) {
	// A request that a busy machine takes long for has another message.
	n := startNode(t, "--datastore", sqliteURL(t), "--log-level=debug", "--warning-unary-request-duration=1h")
	ops := make([]clientv3.Op, 100)
	for i := range ops {
		ops[i] = clientv3.OpGet(strings.Repeat(string(rune('a'+i%26)), 2000))
	}
	_, err := n.client(t).Txn(t.Context()).Then(ops...).Commit()
	require.NoError(t, err)
	logged := n.log.await("request")
	require.NotNil(t, logged)
	require.Less(t, len(logged["request"].(string)), 2*maxLoggedText)
	require.Zero(t, n.stop())
}

func TestEachOutputOfTheLogGetsALineThatAnotherDoesNotTake(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("the system has no /dev/full")
	}
	p := newProgram(t, "--log-outputs=/dev/full,stderr,stdout")
	var out, err bytes.Buffer
	p.stdout, p.stderr = &out, &err
	log, closeLog, failed := p.newLogger()
	require.NoError(t, failed)
	log.Info("a line")
	require.NoError(t, closeLog())
	require.Contains(t, out.String(), "a line")
	require.Contains(t, err.String(), "a line")
}

func TestErrorsOfGRPCAreBoundedInTheLog(t *testing.T) {
	n := startNode(t, "--datastore", sqliteURL(t))
	for range 50 {
		resp, err := http.Post(n.endpoint+"/v3/lease/keepalive", "application/json", strings.NewReader("x"))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	http.DefaultClient.CloseIdleConnections()
	logged := n.log.await("gRPC failed")
	require.NotNil(t, logged)
	require.Contains(t, logged["error"], "Failed to decode request: ")
	require.Zero(t, n.stop())
	require.Less(t, strings.Count(n.log.String(), "gRPC failed"), 25)
}
