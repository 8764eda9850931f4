package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/server/etcd"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles/tlstest"
	"github.com/sqlbrain/sqlbrain/watch"
)

// call returns status and body of an HTTP request to s. header has names and values in turn.
func call(t *testing.T, s *Server, method, path, body string, header ...string) (int, string) {
	t.Helper()
	return callURL(t, http.DefaultClient, method, s.ClientURLs()[0]+path, body, header...)
}

func callURL(t *testing.T, c *http.Client, method, url, body string, header ...string) (int, string) {
	t.Helper()
	resp, got := exchange(t, c, method, url, body, header...)
	return resp.StatusCode, got
}

// exchange returns the answer to an HTTP request, and its body.
func exchange(t *testing.T, c *http.Client, method, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(testContext(t), method, url, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	r.Host = r.Header.Get("Host")
	resp, err := c.Do(r)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	c.CloseIdleConnections()
	return resp, string(got)
}

// TestHTTP of integration/compat compares with etcd what etcd has too.
func TestHTTPEndpoints(t *testing.T) {
	const healthy = `{"health":"true","reason":""}`
	noSpace := []quota.Alarm{{MemberID: fakeMember, Type: quota.AlarmNoSpace}}
	corrupt := []quota.Alarm{{MemberID: fakeMember, Type: quota.AlarmCorrupt}}
	secret := errors.New("dial tcp db.internal:3306: password YES")
	tests := []struct {
		path   string
		node   fakeNode
		status int
		body   string
	}{
		{"/health?exclude=NOSPACE", fakeNode{alarms: corrupt}, 503, `{"health":"false","reason":"ALARM CORRUPT"}` + "\n"},
		{"/health", fakeNode{serving: mvcc.ErrNotServing}, 503, `{"health":"false","reason":"RAFT NO LEADER"}` + "\n"},
		{"/health?serializable=true", fakeNode{serving: mvcc.ErrNotServing}, 200, healthy},
		{"/health", fakeNode{err: mvcc.ErrTimeout}, 503,
			`{"health":"false","reason":"RANGE ERROR:etcdserver: request timed out"}` + "\n"},
		{"/health", fakeNode{err: secret}, 503,
			`{"health":"false","reason":"RANGE ERROR:sqlbrain: internal error; the server's log says more"}` + "\n"},

		{"/livez", fakeNode{err: mvcc.ErrTimeout}, 503, "[-]serializable_read failed: etcdserver: request timed out\n\n"},
		{"/livez/linearizable_read", fakeNode{}, 404, "404 page not found\n"},

		{"/readyz?verbose", fakeNode{}, 200, "[+]data_corruption ok\n[+]serializable_read ok\n[+]linearizable_read " +
			"ok\n[+]non_learner ok\n[+]serving ok\n[+]leader ok\n[+]watch_feed ok\n[+]database ok\nok\n"},
		{"/readyz?verbose&exclude=data_corruption&exclude=nothing", fakeNode{alarms: corrupt}, 200,
			"[+]serializable_read ok\n[+]linearizable_read ok\n[+]non_learner ok\n[+]serving ok\n[+]leader ok\n[+]watch_feed " +
				"ok\n[+]database ok\nok\n"},
		{"/readyz", fakeNode{alarms: corrupt}, 503, "[-]data_corruption failed: alarm activated: " +
			"CORRUPT\n[+]serializable_read ok\n[+]linearizable_read ok\n[+]non_learner ok\n[+]serving ok\n[+]leader " +
			"ok\n[+]watch_feed ok\n[+]database ok\n\n"},
		{"/readyz/data_corruption", fakeNode{alarms: noSpace}, 200, "ok\n"},
		{"/readyz/linearizable_read", fakeNode{err: mvcc.ErrNotServing}, 503,
			"[-]linearizable_read failed: etcdserver: no leader\n\n"},
		{"/readyz/serving", fakeNode{health: fakeHealth{stopped: fmt.Errorf("%w: data was lost", mvcc.ErrNotServing)}}, 503,
			"[-]serving failed: " + mvcc.ErrNotServing.Error() + ": data was lost\n\n"},
		{"/readyz/leader", fakeNode{health: fakeHealth{stopped: mvcc.ErrNotServing}}, 200, "ok\n"},
		{"/readyz/leader", fakeNode{serving: mvcc.ErrNotServing, health: fakeHealth{stopped: mvcc.ErrNotServing}}, 503,
			"[-]leader failed: no leader is known\n\n"},
		{"/readyz/watch_feed", fakeNode{health: fakeHealth{fed: errors.New("nothing was heard")}}, 503,
			"[-]watch_feed failed: nothing was heard\n\n"},
		{"/readyz/database", fakeNode{health: fakeHealth{writable: secret}}, 503,
			"[-]database failed: a write failed: sqlbrain: internal error; the server's log says more\n\n"},
		{"/readyz/database?verbose", fakeNode{}, 200, "[+]database ok\nok\n"},
	}
	for i := range tests {
		tt := &tests[i]
		t.Run(fmt.Sprint(tt.path, i), func(t *testing.T) {
			status, body := call(t, startFake(t, &tt.node, nil), http.MethodGet, tt.path, "")
			require.Equal(t, tt.status, status)
			require.Equal(t, tt.body, body)
		})
	}
}

func TestOrigins(t *testing.T) {
	header := func(s *Server, method, origin string) (int, http.Header) {
		resp, _ := exchange(t, http.DefaultClient, method, s.ClientURLs()[0]+"/version", "", "Origin", origin)
		return resp.StatusCode, resp.Header
	}
	const allowed = "Access-Control-Allow-Origin"
	_, h := header(startFake(t, &fakeNode{}, nil), http.MethodGet, "http://a")
	require.Empty(t, h.Get(allowed))
	all := startFake(t, &fakeNode{}, nil, func(c *Config) { c.CORS = []string{"*"} })
	_, h = header(all, http.MethodGet, "http://a")
	require.Equal(t, "*", h.Get(allowed))
	status, h := header(all, http.MethodOptions, "http://a")
	require.Equal(t, 200, status)
	require.Equal(t, "accept, content-type, authorization", h.Get("Access-Control-Allow-Headers"))
	require.Equal(t, "POST, GET, OPTIONS, PUT, DELETE", h.Get("Access-Control-Allow-Methods"))
	one := startFake(t, &fakeNode{}, nil, func(c *Config) { c.CORS = []string{"http://a"} })
	_, h = header(one, http.MethodGet, "http://a")
	require.Equal(t, "http://a", h.Get(allowed))
	_, h = header(one, http.MethodGet, "http://b")
	require.Empty(t, h.Get(allowed))
}

// A page of another site can send what a form can, without that the browser asks first.
func TestPagesOfOtherOriginsChangeNothing(t *testing.T) {
	node := &fakeNode{txnResult: mvcc.TxnResult{Results: []mvcc.OpResult{{Put: &mvcc.PutResult{}}}}}
	post := func(s *Server, name, value string) int {
		t.Helper()
		code, _ := call(t, s, http.MethodPost, "/v3/kv/put", `{"key":"YQ=="}`, "Content-Type", "text/plain", name, value)
		return code
	}
	none := startFake(t, node, nil)
	require.Equal(t, 403, post(none, "Origin", "http://a"))
	require.Equal(t, 403, post(none, "Sec-Fetch-Site", "cross-site"))
	require.Equal(t, 200, post(none, "Origin", none.ClientURLs()[0]))
	require.Equal(t, 200, post(none, "User-Agent", "no browser"))
	one := startFake(t, node, nil, func(c *Config) { c.CORS = []string{"http://a"} })
	require.Equal(t, 200, post(one, "Origin", "http://a"))
	require.Equal(t, 403, post(one, "Origin", "http://b"))
	all := startFake(t, node, nil, func(c *Config) { c.CORS = []string{"*"} })
	require.Equal(t, 200, post(all, "Origin", "http://b"))

	requireRefused(t, "CORS", func(c *Config) { c.CORS = []string{"a"} })
}

// Names are compared as etcd compares them: exactly, and without TLS only.
func TestHosts(t *testing.T) {
	ca, d := tlstest.NewServer(t)
	ask := func(s *Server, h *http.Client, path, host string) int {
		t.Helper()
		code, _ := callURL(t, h, http.MethodGet, s.ClientURLs()[0]+path, "", "Host", host)
		return code
	}
	for _, tt := range []struct {
		whitelist []string
		host      string
		plain     int
	}{
		{nil, "evil.example", 200},
		{[]string{"*"}, "evil.example", 200},
		{[]string{"a.example", "::1"}, "a.example", 200},
		{[]string{"a.example", "::1"}, "a.example:2379", 200},
		{[]string{"a.example", "::1"}, "[::1]:2379", 200},
		{[]string{"a.example", "::1"}, "evil.example", 421},
		{[]string{"a.example", "::1"}, "a.example.evil.example", 421},
		{[]string{"a.example", "::1"}, "127.0.0.1:2379", 421},
		{[]string{"a.example", "*"}, "evil.example", 200},
	} {
		listed := func(c *Config) { c.HostWhitelist = tt.whitelist }
		s := startFake(t, &fakeNode{}, nil, listed)
		for _, path := range []string{"/version", "/health", "/metrics"} {
			require.Equal(t, tt.plain, ask(s, http.DefaultClient, path, tt.host), "%v", tt)
		}
		s = startFake(t, &fakeNode{}, nil, listed, overTLS(d))
		for _, http2 := range []bool{false, true} {
			h := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.ClientConfig(t, nil), ForceAttemptHTTP2: http2}}
			require.Equal(t, 200, ask(s, h, "/version", tt.host), "%v", tt)
		}
	}
}

// What follows a request that is not JSON is not read as requests, and the end of the connection must be noticed all
// the same.
func TestGatewayEndsAWatchWhoseClientIsGone(t *testing.T) {
	for name, rest := range map[string]string{"not JSON": "x", "nothing": "",
		"space": strings.Repeat(" ", 3*(1000+etcd.MessageOverhead))} {
		t.Run(name, func(t *testing.T) {
			fake := newFakeStream()
			s := startFake(t, &fakeNode{}, fake, func(c *Config) { c.MaxRequestBytes = 1000 })
			conn, err := net.Dial("tcp", s.clients[0].Addr().String())
			require.NoError(t, err)
			_, err = fmt.Fprintf(conn, "POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s%s", 1<<30,
				`{"create_request":{"key":"aw=="}}`, rest)
			require.NoError(t, err)
			<-fake.requests
			fake.responses <- &watch.Response{Created: true}
			require.NoError(t, conn.Close())
			<-fake.closed
		})
	}
}

// The limit on the streams of a connection is for clients' connections: the gateway has one for all clients.
func TestGatewayAnswersWhileStreamsAreOpen(t *testing.T) {
	const streams = 2
	s := startReplica(t, func(c *Config) { c.MaxConcurrentStreams = streams })
	defer http.DefaultClient.CloseIdleConnections()
	for range 2 * streams {
		r, err := http.NewRequestWithContext(testContext(t), http.MethodPost, s.ClientURLs()[0]+"/v3/watch",
			strings.NewReader(`{"create_request":{"key":"aw=="}}`))
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer func() { require.NoError(t, resp.Body.Close()) }()
		answer, err := bufio.NewReader(resp.Body).ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, answer, `"created":true`)
	}
	status, answer := call(t, s, http.MethodPost, "/v3/kv/range", `{"key":"aw=="}`)
	require.Equal(t, 200, status, answer)
}

func TestGatewayRefusesEndlessBodies(t *testing.T) {
	s := startFake(t, &fakeNode{}, nil, func(c *Config) { c.MaxRequestBytes = 1000 })
	rest := strings.Repeat("a", 2*(1000+etcd.MessageOverhead))
	for name, body := range map[string]string{"in the request": `{"key":"` + rest + `"}`,
		"after the request": `{"key":"aw=="}` + rest} {
		t.Run(name, func(t *testing.T) {
			status, answer := call(t, s, http.MethodPost, "/v3/kv/range", body)
			require.Equal(t, 400, status)
			require.Contains(t, answer, "request body too large")
		})
	}
}

func TestGatewayBoundsEachRequestOfAStream(t *testing.T) {
	s := startFake(t, &fakeNode{lease: lease.Status{GrantedTTL: 10}}, nil, func(c *Config) { c.MaxRequestBytes = 1000 })
	// HTTP/1 loses what of the body was not read when the answer begins.
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	large := strings.Repeat(" ", 1000+etcd.MessageOverhead)
	url := s.ClientURLs()[0] + "/v3/lease/keepalive"
	status, answer := callURL(t, &http.Client{Transport: tr}, http.MethodPost, url,
		`{"ID":1}{`+large+`"ID":2}{`+large+`"ID":3}`)
	require.Equal(t, 200, status)
	require.Equal(t, 3, strings.Count(answer, `"result"`), "each is within the bound, their sum is not")
	status, answer = callURL(t, &http.Client{Transport: tr}, http.MethodPost, url, `{"ID":1}{`+large+large+large+`"ID":2}`)
	require.Equal(t, 200, status)
	require.Equal(t, 1, strings.Count(answer, `"result"`), "the stream ends at what is too large")
}

// etcd's alerts divide by the quota: a quota of 0 makes them fire for ever.
func TestNoMetricOfTheQuotaWithoutOne(t *testing.T) {
	_, body := call(t, startFake(t, &fakeNode{noQuota: true}, nil, func(*Config) {}), http.MethodGet, "/metrics", "")
	require.Contains(t, body, "\netcd_mvcc_db_total_size_in_use_in_bytes ")
	require.NotContains(t, body, "etcd_server_quota_backend_bytes")
}

func TestMetrics(t *testing.T) {
	n := &fakeNode{rangeResult: mvcc.RangeResult{Revision: 1}, txnResult: mvcc.TxnResult{Results: []mvcc.OpResult{
		{Put: &mvcc.PutResult{}}, {Range: &mvcc.RangeResult{}},
		{Txn: &mvcc.TxnResult{Results: []mvcc.OpResult{{Delete: &mvcc.DeleteResult{}}}}},
	}}}
	s := startFake(t, n, nil, func(c *Config) {
		c.Version = "1.2.3"
		c.ListenMetricsURLs = []string{loopback}
	})
	kv, ctx := pb.NewKVClient(dial(t, s)), testContext(t)
	_, err := kv.Range(ctx, &pb.RangeRequest{Key: key})
	require.NoError(t, err)
	_, err = kv.Txn(ctx, &pb.TxnRequest{})
	require.NoError(t, err)
	_, err = kv.Range(ctx, &pb.RangeRequest{})
	require.Error(t, err)
	for _, url := range []string{s.ClientURLs()[0], metricsURLs(s)[0]} {
		status, body := callURL(t, http.DefaultClient, http.MethodGet, url+"/metrics", "")
		require.Equal(t, 200, status)
		for _, line := range []string{
			"etcd_server_has_leader 1",
			"etcd_server_is_leader 1",
			`etcd_server_version{server_version="3.7.3"} 1`,
			`etcd_cluster_version{cluster_version="3.7"} 1`,
			`etcd_server_id{server_id="16"} 1`,
			`sqlbrain_build_info{version="1.2.3"} 1`,
			"etcd_mvcc_db_total_size_in_bytes 4096",
			"etcd_mvcc_db_total_size_in_use_in_bytes 2048",
			"etcd_server_quota_backend_bytes 1.073741824e+09",
			"etcd_debugging_mvcc_current_revision 100",
			"etcd_debugging_mvcc_compact_revision 0",
			"etcd_mvcc_range_total 2",
			"etcd_mvcc_put_total 1",
			"etcd_mvcc_delete_total 1",
			"etcd_mvcc_txn_total 1",
			`etcd_server_client_requests_total{client_api_version="unknown",type="unary"} 3`,
			`grpc_server_handled_total{grpc_code="OK",grpc_method="Range",grpc_service="etcdserverpb.KV",grpc_type="unary"} 1`,
			`grpc_server_handled_total{grpc_code="InvalidArgument",grpc_method="Range",grpc_service="etcdserverpb.KV",grpc_type="unary"} 1`,
			"go_goroutines ", "process_start_time_seconds ",
			"etcd_network_client_grpc_received_bytes_total 3",
			"etcd_network_client_grpc_sent_bytes_total ",
		} {
			require.Contains(t, body, "\n"+line)
		}
	}
	status, _ := callURL(t, http.DefaultClient, http.MethodGet, metricsURLs(s)[0]+"/livez", "")
	require.Equal(t, 200, status)
	status, _ = callURL(t, http.DefaultClient, http.MethodPost, metricsURLs(s)[0]+"/v3/kv/range", "{}")
	require.Equal(t, 404, status, "a metrics port does not serve data")
}
