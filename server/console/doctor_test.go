package console_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server"
)

// TestDoctorIsForRootAndOneAtATime: what it finds names hosts and users of the database.
func TestDoctorIsForRootAndOneAtATime(t *testing.T) {
	started, ended := make(chan time.Time), make(chan error)
	var examine func(context.Context) (any, error)
	address := start(t, func(c *server.Config) {
		c.Examine = func(ctx context.Context) (any, error) { return examine(ctx) }
	})
	report := object2{"findings": []object2{{"check": "reachable", "status": "ok", "detail": "at once"},
		{"check": "engine", "status": "fail", "detail": "MyISAM", "advice": "use InnoDB"}}}
	examine = func(context.Context) (any, error) { return report, nil }
	got := newBrowser(t, address)
	found := got.ok(got.ask("doctor"))["findings"].([]any)
	require.Len(t, found, 2)
	require.Equal(t, object2{"check": "engine", "status": "fail", "detail": "MyISAM", "advice": "use InnoDB"}, found[1])

	enableAuth(t, address)
	status, _ := got.ask("doctor")
	require.Equal(t, http.StatusUnauthorized, status)
	alice := newBrowser(t, address)
	alice.login("alice", "alicepw")
	status, out := alice.ask("doctor")
	require.Equal(t, http.StatusForbidden, status)
	require.Equal(t, "etcdserver: permission denied", out["error"])

	root := newBrowser(t, address)
	root.login("root", "rootpw")
	require.Len(t, root.ok(root.ask("doctor"))["findings"], 2)

	// An examination has a deadline, and ends when its client leaves. The next one waits for that.
	examine = func(ctx context.Context) (any, error) {
		deadline, _ := ctx.Deadline()
		started <- deadline
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}
	leaving, leave := context.WithCancel(t.Context())
	defer leave()
	r, err := http.NewRequestWithContext(leaving, http.MethodGet, address+"/ui/api/doctor", nil)
	require.NoError(t, err)
	left := make(chan error)
	go func() {
		resp, err := root.client.Do(r)
		if err == nil {
			err = resp.Body.Close()
		}
		left <- err
	}()
	require.False(t, (<-started).IsZero())
	status, out = root.ask("doctor")
	require.Equal(t, http.StatusTooManyRequests, status)
	require.Equal(t, "another examination is running: try again", out["error"])
	leave()
	require.ErrorIs(t, <-left, context.Canceled)
	require.ErrorIs(t, <-ended, context.Canceled)

	// Why it failed is for the log: errors name the datastore.
	examine = func(context.Context) (any, error) {
		return nil, errors.New("datastore mysql://db:3306/x: no")
	}
	for status = http.StatusTooManyRequests; status == http.StatusTooManyRequests; {
		status, out = root.ask("doctor")
	}
	require.Equal(t, http.StatusBadGateway, status)
	require.NotContains(t, out["error"], "mysql")
}
