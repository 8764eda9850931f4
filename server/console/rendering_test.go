package console

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
)

// blockedKeys are Keys whose histories are not answered before release is closed.
type blockedKeys struct {
	Keys
	release chan struct{}

	mu         sync.Mutex
	asked, now int
	most       int // histories at the same time
}

func (k *blockedKeys) KeyHistory(ctx context.Context, _ *read.KeyHistoryRequest) (*read.KeyHistory, error) {
	k.count(1)
	defer k.count(-1)
	select {
	case <-k.release:
		return &read.KeyHistory{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (k *blockedKeys) count(change int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked += max(change, 0)
	k.now += change
	k.most = max(k.most, k.now)
}

// testHandler returns a console that is called without a network.
func testHandler(change func(*Config)) *Handler {
	cfg := Config{Logger: slog.New(slog.DiscardHandler), Encrypted: func(*http.Request) bool { return true },
		MaxRequestBytes: 1 << 20}
	change(&cfg)
	return New(cfg)
}

// visit asks for an address as a visitor from a host of his own.
func visit(ctx context.Context, h *Handler, host, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, Path+"api/"+path, nil)
	if path == "object" {
		r = httptest.NewRequestWithContext(ctx, http.MethodPost, Path+"api/"+path, strings.NewReader(`{}`))
		r.Header.Set("Content-Type", "application/json")
	}
	r.RemoteAddr = host + ":1234"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const oneHistory = "history?key=YQ"

// TestRequestsThatRenderWaitForEachOther: few render at the same time, few wait, one visitor cannot take all the
// places, and those who left take none.
func TestRequestsThatRenderWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := &blockedKeys{release: make(chan struct{})}
		h := testHandler(func(c *Config) { c.Keys = keys })
		var mu sync.Mutex
		answers := map[int]int{} // by status
		var asking sync.WaitGroup
		ask := func(ctx context.Context, host string, n int) {
			for range n {
				asking.Go(func() {
					w := visit(ctx, h, host, oneHistory)
					if w.Code == http.StatusTooManyRequests {
						require.NotEmpty(t, w.Header().Get("Retry-After"))
						require.Contains(t, w.Body.String(), "try again")
					}
					mu.Lock()
					defer mu.Unlock()
					answers[w.Code]++
				})
			}
			synctest.Wait()
		}
		leaving, leave := context.WithCancel(t.Context())
		ask(leaving, "192.0.2.1", 16)
		require.Equal(t, map[int]int{http.StatusTooManyRequests: 16 - maxRenderingOfOne}, answers)
		leave()
		asking.Wait()
		require.Zero(t, answers[http.StatusOK], "the clients left")
		require.Zero(t, h.rendering.admitted)
		require.Empty(t, h.rendering.of)

		clear(answers)
		for i := range 2 * maxRendering {
			ask(t.Context(), fmt.Sprintf("192.0.2.%d", i), 1)
		}
		require.Equal(t, map[int]int{http.StatusTooManyRequests: maxRendering}, answers)
		close(keys.release)
		asking.Wait()
		require.Equal(t, maxRendering, answers[http.StatusOK])
		require.LessOrEqual(t, keys.most, 4)
	})
}

// TestOneVisitorCannotTakeAllPlaces: neither by made-up logins nor by the many addresses of an IPv6 network.
func TestOneVisitorCannotTakeAllPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := &blockedKeys{release: make(chan struct{})}
		h := testHandler(func(c *Config) { c.Keys = keys })
		var asking sync.WaitGroup
		for i := range maxRendering {
			asking.Go(func() {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, Path+"api/"+oneHistory, nil)
				r.RemoteAddr = fmt.Sprintf("[2001:db8::%d]:1234", i)
				r.AddCookie(&http.Cookie{Name: cookieName, Value: fmt.Sprint("YQ:", i)})
				h.ServeHTTP(httptest.NewRecorder(), r)
			})
		}
		synctest.Wait()
		require.Equal(t, maxRenderingOfOne, h.rendering.admitted)
		close(keys.release)
		asking.Wait()
	})
}

func (k *blockedKeys) Children(context.Context, *read.ChildrenRequest) (*read.Children, error) {
	return &read.Children{}, nil
}

// TestRequestsThatRenderDoNotWaitForEver: the one that works takes too long. Each request that renders waits for it.
func TestRequestsThatRenderDoNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := &blockedKeys{release: make(chan struct{})}
		h := testHandler(func(c *Config) { c.Keys, c.Write = keys, true })
		for h.rendering.slots.TryAcquire(1) {
		}
		for _, path := range []string{oneHistory, "key?key=YQ", "raw?key=YQ", "compare?key=YQ", "keys?details=1", "object"} {
			w := visit(t.Context(), h, "192.0.2.1", path)
			require.Equal(t, http.StatusServiceUnavailable, w.Code, path)
			require.Contains(t, w.Body.String(), errRenderingBusy.text, path)
		}
		require.Zero(t, keys.asked)
		require.Equal(t, http.StatusOK, visit(t.Context(), h, "192.0.2.1", "keys").Code)
	})
}

// secrets are versions of a value that is hidden, so that fingerprints are made of all that are rendered.
func secrets(n int) *read.KeyHistory {
	out := &read.KeyHistory{}
	for i := range n {
		value := fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","data":{"a":"%d"}}`, i)
		out.Versions = append(out.Versions, &coder.Record{ModRevision: int64(n - i), Version: int64(n - i),
			Value: []byte(value)})
	}
	return out
}

type leavingKeys struct {
	Keys
	leave context.CancelFunc
}

func (k leavingKeys) KeyHistory(context.Context, *read.KeyHistoryRequest) (*read.KeyHistory, error) {
	k.leave()
	return secrets(50), nil
}

// TestHistoryEndsWhenItsClientLeaves: nothing is rendered for a client that has left.
func TestHistoryEndsWhenItsClientLeaves(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	h := testHandler(func(c *Config) { c.Keys = leavingKeys{leave: leave} })
	rendered := 0
	h.fingerprint = func([]byte) string {
		rendered++
		return ""
	}
	require.NotEqual(t, http.StatusOK, visit(ctx, h, "192.0.2.1", oneHistory).Code)
	require.Zero(t, rendered)
}

// TestPagesOfTheHistoryHaveABudget: of what is rendered to be compared; the next page has the rest.
func TestPagesOfTheHistoryHaveABudget(t *testing.T) {
	const size = 256 << 10
	all := &read.KeyHistory{}
	for i := range 30 {
		all.Versions = append(all.Versions, &coder.Record{ModRevision: int64(100 - i), Version: 2,
			Value: []byte(strings.Repeat(fmt.Sprintf("%063d\n", i), size/64))})
	}
	page, err := testViewer.history(t.Context(), all, 29)
	require.NoError(t, err)
	require.Len(t, page.Versions, renderBytes/size-1)
	require.Equal(t, page.Versions[len(page.Versions)-1].Revision, page.Next)
	require.False(t, page.Complete)

	// What is too long to be compared is not rendered, and still has its kind.
	long := `{"apiVersion":"v1","kind":"Thing","data":"` + strings.Repeat("x", diffBytes) + `"}`
	page, err = testViewer.history(t.Context(), &read.KeyHistory{Versions: []*coder.Record{
		{ModRevision: 9, Version: 2, Value: []byte(long)}, {ModRevision: 8, Version: 1, Value: []byte("short")},
	}}, 10)
	require.NoError(t, err)
	require.Equal(t, "v1 Thing", page.Versions[0].Kind)
	require.Equal(t, tooLong, page.Versions[0].Diff.Note)
	require.Equal(t, []string{"+short"}, lines(page.Versions[1].Diff))
	require.Empty(t, testViewer.brief([]byte(long)).Readable)
}
