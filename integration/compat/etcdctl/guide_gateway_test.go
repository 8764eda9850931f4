package etcdctl

import (
	"bufio"
	"encoding/json"
	"net/http"
	"regexp"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// gateway: Zm9v and YmFy are foo and bar in base64, as the guide types them.
func gateway(r *reader) {
	r.curl("/v3/kv/put", `{"key": "Zm9v", "value": "YmFy"}`)
	r.curl("/v3/kv/range", `{"key": "Zm9v"}`)
	r.curl("/v3/kv/range", `{"key": "Zm9v", "range_end": "Zm9w"}`)
	r.curl("/v3/kv/put", `{"key": "Zm9v", "value": "YmFyMg==", "prev_kv": true}`)
	r.curl("/v3/kv/txn", `{"compare":[{"target":"CREATE","key":"Zm9v","createRevision":"2"}],"success":[{"requestPut":{"key":"Zm9v","value":"YmFy"}}]}`)
	r.curl("/v3/kv/txn", `{"compare":[{"version":"4","result":"EQUAL","target":"VERSION","key":"Zm9v"}],"success":[{"requestRange":{"key":"Zm9v"}}],"failure":[{"request_delete_range":{"key":"Zm9v","prev_kv":true}}]}`)
	r.curl("/v3/kv/range", `{"key": "Zm9v", "revision": "3", "sort_order": "DESCEND", "sort_target": "MOD"}`)
	r.curl("/v3/kv/compaction", `{"revision": "3"}`)
	r.curl("/v3/kv/range", `{"key": "Zm9v", "revision": 2}`)
	r.curl("/v3/kv/range", `{"key": "AA==", "range_end": "AA==", "count_only": true}`)

	r.curl("/v3/lease/grant", `{"TTL": "600"}`)
	r.curl("/v3/lease/grant", `{"TTL": "600", "ID": "7587"}`)
	r.curl("/v3/lease/grant", `{"TTL": "600", "ID": "7587"}`)
	r.curl("/v3/kv/put", `{"key": "bGVhc2Vk", "value": "MQ==", "lease": "7587"}`)
	r.curl("/v3/lease/timetolive", `{"ID": "7587", "keys": true}`)
	r.curl("/v3/lease/revoke", `{"ID": "7587"}`)
	r.curl("/v3/lease/revoke", `{"ID": "7587"}`)
	r.curl("/v3/lease/leases", `{}`)
	r.curl("/v3/kv/range", `{"key": "bGVhc2Vk"}`)

	r.curl("/v3/cluster/member/list", `{}`, noPeers)
	r.settled()
	r.curl("/v3/maintenance/status", `{}`, logOf)
	r.curl("/v3/maintenance/hashkv", `{}`)
	r.curl("/v3/maintenance/alarm", `{"action": "GET"}`)

	// Invalid requests.
	r.curl("/v3/kv/put", `{"value": "YmFy"}`)
	r.curl("/v3/kv/put", `{"key": "not base64"}`)
	r.curl("/v3/kv/put", `{"key": `)
	r.curl("/v3/kv/put", `{"key": "Zm9v", "unknown": 1}`)
	r.curl("/v3/kv/put", `{"key": "Zm9v", "value": "YmFy", "lease": "99"}`)
	r.curl("/v3/kv/range", `{"key": "Zm9v", "revision": "999"}`)
	r.curl("/v3/kv/range", `{"key": "Zm9v", "sort_order": "SIDEWAYS"}`)
	r.curl("/v3/kv/nothing", `{}`)
	r.curl("/v3/kv/range", "") // GET
	r.curlAs("", http.MethodPut, "/v3/kv/put", `{"key": "Zm9v"}`)
	r.curlAs("", http.MethodOptions, "/v3/kv/put", "")
	r.curl("/v3beta/kv/range", `{"key": "Zm9v"}`)
	r.curl("/v3alpha/kv/range", `{"key": "Zm9v"}`)
	r.curl("/", "")
}

var (
	// A sqlbrain that serves no other members has no peer addresses, except on SQLite.
	noPeers = mask{regexp.MustCompile(`"name":"[^"]*",("peerURLs":\["http://HOST:PORT"\],)?`), ""}
	logOf   = mask{regexp.MustCompile(`"(leader|raftIndex|raftTerm|raftAppliedIndex|dbSize|dbSizeInUse|dbSizeQuota)":"\d+",?`), ""}
)

func gatewayWithUsers(r *reader) {
	r.curl("/v3/auth/user/add", `{"name": "root", "password": "pass"}`)
	r.curl("/v3/auth/role/add", `{"name": "root"}`)
	r.curl("/v3/auth/user/grant", `{"user": "root", "role": "root"}`)
	r.curl("/v3/auth/enable", `{}`)
	r.curl("/v3/auth/enable", `{}`)
	r.curl("/v3/kv/put", `{"key": "Zm9v", "value": "YmFy"}`)
	r.curl("/v3/auth/authenticate", `{"name": "root", "password": "wrong"}`)
	token := mask{regexp.MustCompile(`"token":"[a-zA-Z]{16}\.\d+"`), `"token":"TOKEN"`}
	var given struct{ Token string }
	answer := r.curl("/v3/auth/authenticate", `{"name": "root", "password": "pass"}`, token)
	require.NoError(r.t, json.Unmarshal([]byte(answer), &given))
	post := func(path, body string) { r.t.Helper(); r.curlAs(given.Token, http.MethodPost, path, body) }
	post("/v3/kv/put", `{"key": "Zm9v", "value": "YmFy"}`)
	post("/v3/kv/range", `{"key": "Zm9v"}`)
	post("/v3/auth/user/list", `{}`)
	post("/v3/auth/role/get", `{"role": "root"}`)
	post("/v3/auth/user/get", `{"name": "nobody"}`)
	post("/v3/auth/status", `{}`)
	r.curlAs("nonsense", http.MethodPost, "/v3/kv/range", `{"key": "Zm9v"}`)
	r.curlAs("Bearer "+given.Token, http.MethodPost, "/v3/kv/range", `{"key": "Zm9v"}`)
	post("/v3/auth/disable", `{}`)
	post("/v3/kv/range", `{"key": "Zm9v"}`)
	r.curl("/v3/kv/range", `{"key": "Zm9v"}`)
}

func gatewayStreams(r *reader) {
	r.curl("/v3/kv/put", `{"key": "Zm9v", "value": "YmFy"}`)
	r.curl("/v3/kv/put", `{"key": "Zm9v", "value": "YmFyMg=="}`)
	created := `"created":true`
	r.stream("/v3/watch", `{"create_request": {"key": "Zm9v", "start_revision": "2", "prev_kv": true}}`, created,
		"YmFyMg==")
	r.stream("/v3/watch", `{"create_request": {"key": "Zm9v", "start_revision": "3", "filters": ["NODELETE"], "watch_id": "7"}}`, created, "YmFyMg==")
	r.curl("/v3/kv/compaction", `{"revision": "3"}`)
	r.stream("/v3/watch", `{"create_request": {"key": "Zm9v", "start_revision": "1"}}`, created, "compact_revision")
	r.curl("/v3/lease/grant", `{"TTL": "600", "ID": "7587"}`)
	r.stream("/v3/lease/keepalive", `{"ID": "7587"}`, "TTL")
	r.stream("/v3/lease/keepalive", `{"ID": "7588"}`, "header")
	r.curl("/v3/lock/lock", `{"name": "bXV0ZXg=", "lease": "7587"}`)
	r.curl("/v3/lock/unlock", `{"key": "bXV0ZXgvMWRhMw=="}`)
	r.curl("/v3/election/campaign", `{"name": "b25l", "lease": "7587", "value": "cDE="}`)
	r.curl("/v3/election/leader", `{"name": "b25l"}`)
	r.stream("/v3/election/observe", `{"name": "b25l"}`, "cDE=")
	r.curl("/v3/election/leader", `{"name": "bm9ib2R5"}`)
}

// stream makes a request whose answer is a stream, and keeps a line of it for each
// text, which it has.
func (r *reader) stream(path, body string, texts ...string) {
	r.t.Helper()
	resp := r.request("", http.MethodPost, path, body)
	defer resp.Body.Close() //nolint:errcheck // it has no end
	late := time.AfterFunc(eventually.Deadline, func() { _ = resp.Body.Close() })
	defer late.Stop()
	lines := bufio.NewReader(resp.Body)
	for _, text := range texts {
		line, err := lines.ReadBytes('\n')
		require.NoError(r.t, err, "%s: %q is missing", path, text)
		require.Contains(r.t, string(line), text)
		r.keep(path+" "+body, outputOf(resp, line), nil)
	}
}
