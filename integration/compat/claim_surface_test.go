package compat

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// missing ends a claim about a part of etcd that sqlbrain has not got, as long as
// it says so itself.
func (c *checker) missing(part string, method string, req proto.Message) {
	c.t.Helper()
	if a := c.p.subject.ask(call{method, req}); status.Code(a.err) == codes.Unimplemented {
		c.t.Skipf("%s: %s answers %s", part, method, a)
	}
}

func TestSurface(t *testing.T) {
	testClaims(t, nil, []claim{
		{"Cluster/MemberAdd", func(c *checker) {
			c.needsCluster()
			for _, urls := range [][]string{nil, {""}, {"::"}, {"nonsense"}, {"ftp://127.0.0.1:1"}, {"http://127.0.0.1"},
				{"http://127.0.0.1:1/path"}} {
				c.ask("Cluster/MemberAdd", &pb.MemberAddRequest{PeerURLs: urls})
			}
		}},
		{"Cluster/MemberRemove", func(c *checker) {
			c.needsCluster()
			c.refused("Cluster/MemberRemove", &pb.MemberRemoveRequest{ID: 1}, codes.NotFound, "etcdserver: member not found")
			a := c.askEach("Cluster/MemberRemove", func(s *side) proto.Message {
				return &pb.MemberRemoveRequest{ID: c.member(s).ID}
			})
			c.holds(a.err != nil, "%s", a)
		}},
		{"Cluster/MemberUpdate", func(c *checker) {
			c.needsCluster()
			c.refused("Cluster/MemberUpdate", &pb.MemberUpdateRequest{ID: 1, PeerURLs: []string{"http://127.0.0.1:1"}},
				codes.NotFound, "etcdserver: member not found")
			c.ask("Cluster/MemberUpdate", &pb.MemberUpdateRequest{ID: 1, PeerURLs: []string{"::"}})
			a := c.askEach("Cluster/MemberUpdate", func(s *side) proto.Message {
				return &pb.MemberUpdateRequest{ID: c.member(s).ID, PeerURLs: []string{"http://127.0.0.1:1"}}
			})
			c.holds(a.err == nil, "%s", a)
			c.refused("Cluster/MemberAdd", &pb.MemberAddRequest{PeerURLs: []string{"http://127.0.0.1:1"}},
				codes.FailedPrecondition, "etcdserver: Peer URLs already exists")
		}},
		{"Cluster/MemberPromote", func(c *checker) {
			c.needsCluster()
			c.ask("Cluster/MemberPromote", &pb.MemberPromoteRequest{ID: 1})
			a := c.askEach("Cluster/MemberPromote", func(s *side) proto.Message {
				return &pb.MemberPromoteRequest{ID: c.member(s).ID}
			})
			c.holds(a.err != nil, "%s", a)
		}},
		{"Maintenance/Downgrade", func(c *checker) {
			q := &pb.DowngradeRequest{Version: "3.6.0"}
			c.missing("downgrades", "Maintenance/Downgrade", q)
			c.ask("Maintenance/Downgrade", q)
		}},
		{"grpc.health.v1", func(c *checker) {
			for _, service := range []string{"", "etcdserverpb.KV", "nonsense"} {
				var got []string
				for _, s := range c.p.sides() {
					check := func() string {
						r, err := healthpb.NewHealthClient(s.conn).Check(c.t.Context(), &healthpb.HealthCheckRequest{Service: service})
						return r.GetStatus().String() + " " + status.Code(err).String()
					}
					if service == "" {
						// sqlbrain looks every second whether it serves: the last time may have been before it led.
						eventually.True(c.t, s.name+" to report that it serves", func() bool { return check() == "SERVING OK" })
					}
					got = append(got, check())
				}
				if c.same("health of "+service, got) {
					c.rec.request(call{"grpc.health.v1.Health/Check", &healthpb.HealthCheckRequest{Service: service}},
						got[0] == "SERVING OK")
				}
			}
		}},
	})
}

// needsCluster ends a claim about members where there can be but one.
func (c *checker) needsCluster() {
	c.t.Helper()
	c.missing("members other than the only one", "Cluster/MemberRemove", &pb.MemberRemoveRequest{ID: 1})
}

// askEach is ask with a request for each server.
func (c *checker) askEach(method string, req func(*side) proto.Message) answer {
	c.t.Helper()
	theirs, ours := call{method, req(c.p.etcd)}, call{method, req(c.p.subject)}
	c.trace = append(c.trace, theirs.String())
	etcd, subject := c.p.etcd.ask(theirs), c.p.subject.ask(ours)
	c.compare(theirs, etcd, subject)
	c.learn(etcd)
	return etcd
}

// member is the one member that the server knows: itself.
func (c *checker) member(s *side) *pb.Member {
	c.t.Helper()
	r, ok := s.ask(call{"Cluster/MemberList", &pb.MemberListRequest{Linearizable: true}}).only().(*pb.MemberListResponse)
	if !ok || len(r.Members) != 1 {
		c.t.Fatalf("%s: members %v", s.name, r)
	}
	return r.Members[0]
}

// same fails the test unless what etcd and the subject gave is the same.
func (c *checker) same(what string, got []string) bool {
	c.t.Helper()
	if got[0] != got[1] {
		c.t.Errorf("%s\netcd:    %s\nsubject: %s", what, got[0], got[1])
		return false
	}
	return true
}

var (
	jsonIDs = regexp.MustCompile(
		`"(cluster_id|member_id|raft_term|ID|leader|raftIndex|raftTerm|raftAppliedIndex|dbSize|dbSizeInUse)":"[1-9][0-9]*"`)
	jsonToken = regexp.MustCompile(`"token":"[a-zA-Z]{16}\.[0-9]+"`)
	jsonTTL   = regexp.MustCompile(`"TTL":"3[56][0-9][0-9]"`) // of the hour that claims grant
	jsonHash  = regexp.MustCompile(`"hash":[1-9][0-9]*`)
	jsonURLs  = regexp.MustCompile(`"(clientURLs|peerURLs)":\[[^]]*\],?`)
)

// web sends an HTTP request to both servers and compares status, type and body.
func (c *checker) web(method, path, body string) (code int, answer string) {
	c.t.Helper()
	return c.webEach(method, path, func(*side) string { return body })
}

// webEach is web with a body for each server.
func (c *checker) webEach(method, path string, body func(*side) string) (code int, answer string) {
	c.t.Helper()
	c.trace = append(c.trace, method+" "+path+" "+body(c.p.etcd))
	var got []string
	for _, s := range c.p.sides() {
		q, err := http.NewRequestWithContext(c.t.Context(), method, s.node.Endpoint()+path, strings.NewReader(body(s)))
		if err != nil {
			c.t.Fatal(err)
		}
		for _, token := range s.caller.Get(rpctypes.TokenFieldNameGRPC) {
			q.Header.Set("Authorization", token)
		}
		resp, err := httpClient.Do(q)
		if err != nil {
			c.t.Fatalf("%s: %v", s.name, err)
		}
		b, err := io.ReadAll(resp.Body)
		if err := resp.Body.Close(); err != nil {
			c.t.Error(err)
		}
		if err != nil {
			c.t.Fatal(err)
		}
		if got == nil {
			code, answer = resp.StatusCode, string(b)
		}
		if strings.HasPrefix(path, "/readyz") {
			b = ownChecks.ReplaceAll(b, nil)
		}
		text := canonical(b)
		text = jsonToken.ReplaceAllString(text, `"token":"T"`)
		text = jsonIDs.ReplaceAllString(text, `"$1":"1"`)
		text = jsonTTL.ReplaceAllString(text, `"TTL":"3600"`)
		text = jsonURLs.ReplaceAllString(text, "")
		if strings.HasSuffix(path, "/hash") { // covers how the store keeps things
			text = jsonHash.ReplaceAllString(text, `"hash":1`)
		}
		text = strings.NewReplacer("\u00a0", " ", "  ", " ").Replace(text)
		got = append(got, resp.Status+" "+resp.Header.Get("Content-Type")+" "+text)
	}
	if c.same(method+" "+path+" "+body(c.p.etcd), got) {
		c.rec.webRequest(method, path, code < http.StatusBadRequest)
	}
	return code, answer
}

// ownChecks are those of sqlbrain that etcd does not have, if they succeed.
var ownChecks = regexp.MustCompile(`(?m)^\[\+\](serving|leader|watch_feed|database) ok\n`)

// canonical is body without what is at the whim of the build (spaces in JSON) or
// of the run (the order of sub-checks).
func canonical(body []byte) string {
	var compact bytes.Buffer
	if json.Compact(&compact, body) == nil {
		return compact.String()
	}
	lines := strings.Split(strings.TrimSpace(string(body)), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// httpClient keeps no connections open.
var httpClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func TestHTTP(t *testing.T) {
	testClaims(t, nil, []claim{
		{"POST /v3/kv", func(c *checker) {
			c.web("POST", "/v3/kv/put", `{"key":"YQ==","value":"MQ=="}`)
			c.web("POST", "/v3/kv/put", `{"key":"YQ==","value":"Mg==","prev_kv":true}`)
			c.web("POST", "/v3/kv/range", `{"key":"YQ==","range_end":"AA=="}`)
			c.web("POST", "/v3/kv/range", `{"key":"YQ==","count_only":true}`)
			c.web("POST", "/v3/kv/range", `{"key":"YQ==","sort_order":"DESCEND","sort_target":"VALUE","limit":"1"}`)
			c.web("POST", "/v3/kv/txn",
				`{"compare":[{"key":"YQ==","target":"VALUE","value":"Mg=="}],"success":[{"request_range":{"key":"YQ=="}},{"request_put":{"key":"Yg=="}}]}`)
			c.web("POST", "/v3/kv/txn", `{"compare":[{"key":"YQ==","target":"CREATE","createRevision":"2"}],`+
				`"success":[{"requestPut":{"key":"YQ==","value":"Mw=="}}]}`)
			c.web("POST", "/v3/kv/txn", `{"compare":[{"key":"YQ==","target":"VERSION","version":"9","result":"EQUAL"}],`+
				`"failure":[{"request_delete_range":{"key":"Yg==","prev_kv":true}}]}`)
			c.web("POST", "/v3/kv/deleterange", `{"key":"YQ==","prev_kv":true}`)
			c.web("POST", "/v3/kv/compaction", `{"revision":"2"}`)
			c.web("POST", "/v3/kv/compaction", `{"revision":"2"}`)
			c.web("POST", "/v3/kv/range", `{"key":"YQ==","revision":1}`)
		}},
		{"POST /v3/lease", func(c *checker) {
			c.web("POST", "/v3/lease/grant", `{"ID":"7","TTL":"3600"}`)
			c.web("POST", "/v3/lease/grant", `{"ID":"7","TTL":"3600"}`)
			c.web("POST", "/v3/kv/put", `{"key":"YQ==","value":"MQ==","lease":"7"}`)
			c.web("POST", "/v3/lease/timetolive", `{"ID":"7","keys":true}`)
			c.web("POST", "/v3/lease/timetolive", `{"ID":"8","keys":true}`)
			c.web("POST", "/v3/lease/leases", `{}`)
			c.web("POST", "/v3/lease/keepalive", `{"ID":"7"}`)
			c.web("POST", "/v3/lease/keepalive", `{"ID":"8"}`)
			c.web("POST", "/v3/lease/revoke", `{"ID":"7"}`)
			c.web("POST", "/v3/lease/revoke", `{"ID":"7"}`)
			c.web("POST", "/v3/kv/lease/leases", `{}`)
			c.web("POST", "/v3/kv/lease/timetolive", `{"ID":"8"}`)
			c.web("POST", "/v3/lease/grant", `{"ID":"7","TTL":"3600"}`)
			c.web("POST", "/v3/kv/lease/revoke", `{"ID":"7"}`)
		}},
		{"POST /v3/watch", func(c *checker) {
			c.put("a", "1")
			c.put("a", "2")
			c.sameStream("/v3/watch", `{"create_request":{"key":"YQ=="}}`, 1)
			c.sameStream("/v3/watch", fmt.Sprintf(`{"create_request":{"key":"YQ==","start_revision":"%d","prev_kv":true}}`,
				c.revision), 2)
			c.sameStream("/v3/watch", fmt.Sprintf(`{"create_request":{"key":"YQ==","start_revision":"%d","filters":["NODELETE"],`+
				`"watch_id":"7"}}`, c.revision), 2)
			c.compact(c.revision, false)
			c.sameStream("/v3/watch", `{"create_request":{"key":"YQ==","start_revision":"1"}}`, 2)
		}},
		{"POST /v3/cluster and /v3/maintenance", func(c *checker) {
			c.web("POST", "/v3/cluster/member/list", `{}`)
			c.p.ask(call{method: "Maintenance/Status", req: &pb.StatusRequest{}}) // waits until etcd reports its storage version
			c.web("POST", "/v3/maintenance/status", `{}`)
			c.web("POST", "/v3/maintenance/alarm", `{}`)
			c.web("POST", "/v3/maintenance/defragment", `{}`)
			c.web("POST", "/v3/maintenance/hash", `{}`)
			c.web("POST", "/v3/maintenance/hashkv", `{}`)
			c.web("POST", "/v3/maintenance/hashkv", `{"revision":"99999"}`)
			c.web("POST", "/v3/maintenance/transfer-leadership", `{"targetID":"1"}`)
			c.webEach("POST", "/v3/maintenance/transfer-leadership", func(s *side) string {
				return fmt.Sprintf(`{"targetID":"%d"}`, c.member(s).ID)
			})
		}},
		{"POST /v3/cluster, of members", func(c *checker) {
			c.needsCluster()
			c.web("POST", "/v3/cluster/member/add", `{"peerURLs":["::"]}`)
			c.web("POST", "/v3/cluster/member/remove", `{"ID":"1"}`)
			c.web("POST", "/v3/cluster/member/promote", `{"ID":"1"}`)
			c.web("POST", "/v3/cluster/member/update", `{"ID":"1","peerURLs":["http://127.0.0.1:1"]}`)
			c.webEach("POST", "/v3/cluster/member/update", func(s *side) string {
				return fmt.Sprintf(`{"ID":"%d","peerURLs":["http://127.0.0.1:1"]}`, c.member(s).ID)
			})
		}},
		{"POST /v3/auth, authentication off", func(c *checker) {
			c.web("POST", "/v3/auth/status", `{}`)
			c.web("POST", "/v3/auth/authenticate", `{"name":"u","password":"p"}`)
		}},
		{"errors of the gateway", func(c *checker) {
			code, body := c.web("POST", "/v3/kv/put", `{}`)
			c.holds(code == 400 && strings.Contains(body, `"etcdserver: key is not provided"`) &&
				strings.Contains(body, `"code"`), "%d %s", code, body)
			c.web("POST", "/v3/kv/put", `{"key":"not base64"}`)
			c.web("POST", "/v3/kv/put", `{"key":`)
			c.web("POST", "/v3/kv/put", `{"key":"YQ==","lease":"99"}`)
			c.web("POST", "/v3/kv/range", `{"key":"YQ==","sort_order":"SIDEWAYS"}`)
			c.web("POST", "/v3/kv/range", `not json`)
			c.web("POST", "/v3/kv/range", ``)
			c.web("POST", "/v3/kv/range", `{"key":"YQ==","unknown":1}`)
			c.web("POST", "/v3/kv/range", `{"key":"YQ==","revision":"99999"}`)
			c.web("POST", "/v3/kv/nothing", `{}`)
			c.web("GET", "/v3/kv/range", ``)
			c.web("PUT", "/v3/kv/put", `{"key":"YQ=="}`)
			c.web("POST", "/v3/lease/revoke", `{"ID":"5"}`)
		}},
		{"GET /health", func(c *checker) {
			for _, query := range []string{"", "?serializable=true", "?serializable=false", "?exclude=NOSPACE",
				"?exclude=NOSPACE&exclude=CORRUPT", "?serializable=maybe"} {
				c.web("GET", "/health"+query, "")
			}
			c.web("POST", "/health", "")
		}},
		{"GET /health with an alarm", func(c *checker) {
			c.ask("Maintenance/Alarm", &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: 7,
				Alarm: pb.AlarmType_NOSPACE})
			code, body := c.web("GET", "/health", "")
			c.holds(code == 503 && strings.Contains(body, "NOSPACE"), "%d %s", code, body)
			c.web("GET", "/health?exclude=NOSPACE", "")
			c.web("GET", "/livez", "")
			c.web("GET", "/readyz?verbose", "")
			c.ask("Maintenance/Alarm", &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: 7,
				Alarm: pb.AlarmType_NOSPACE})
			c.ask("Maintenance/Alarm", &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: 7,
				Alarm: pb.AlarmType_CORRUPT})
			c.web("GET", "/health", "")
			c.web("GET", "/livez", "")
			c.web("GET", "/readyz/data_corruption", "")
			c.ask("Maintenance/Alarm", &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: 7,
				Alarm: pb.AlarmType_CORRUPT})
		}},
		{"GET /livez and /readyz, with sub-checks", func(c *checker) {
			for _, path := range []string{"/livez", "/livez?verbose", "/livez/serializable_read",
				"/livez?exclude=serializable_read&verbose", "/livez?exclude=nonsense",
				"/readyz", "/readyz?verbose", "/readyz/linearizable_read", "/readyz/serializable_read", "/readyz/data_corruption",
				"/readyz/non_learner",
				"/readyz?exclude=linearizable_read&verbose", "/readyz/nonsense", "/livez/nonsense",
				"/livez?allowlist=serializable_read"} {
				c.web("GET", path, "")
			}
			c.web("POST", "/readyz/data_corruption", "")
		}},
		{"GET /version", func(c *checker) {
			_, body := c.web("GET", "/version", "")
			c.holds(strings.Contains(body, `"etcdserver"`) && strings.Contains(body, `"etcdcluster"`) &&
				strings.Contains(body, `"storage"`), "%s", body)
			c.web("POST", "/version", "")
		}},
		{"GET /metrics has etcd's names", func(c *checker) {
			for _, name := range []string{"etcd_server_has_leader", "etcd_server_is_leader", "etcd_mvcc_db_total_size_in_bytes",
				"etcd_server_version", "etcd_debugging_mvcc_put_total", "grpc_server_handled_total"} {
				var got []string
				for _, s := range c.p.sides() {
					resp, err := httpClient.Get(s.node.Endpoint() + "/metrics")
					if err != nil {
						c.t.Fatal(err)
					}
					b, err := io.ReadAll(resp.Body)
					if err := resp.Body.Close(); err != nil {
						c.t.Error(err)
					}
					if err != nil {
						c.t.Fatal(err)
					}
					got = append(got, map[bool]string{true: "there", false: "missing"}[bytes.Contains(b, []byte("\n"+name))])
				}
				if c.same(name, got) {
					c.rec.webRequest("GET", "/metrics", true)
				}
			}
		}},
		{"other paths", func(c *checker) {
			for _, path := range []string{"/", "/nothing", "/v2/keys", "/v3", "/v3beta/kv/range"} {
				c.web("GET", path, "")
			}
			c.web("POST", "/v3beta/kv/range", `{"key":"YQ=="}`)
			c.web("POST", "/v3alpha/kv/range", `{"key":"YQ=="}`)
		}},
	})
}

// sameStream posts body to both servers, whose answers do not end, and compares their first lines.
func (c *checker) sameStream(path, body string, lines int) {
	c.t.Helper()
	var got []string
	for _, s := range c.p.sides() {
		got = append(got, c.firstLines(s, path, body, lines))
	}
	if c.same("the first lines of "+path+" "+body, got) {
		c.rec.webRequest("POST", path, true)
	}
}

func (c *checker) firstLines(s *side, path, body string, lines int) string {
	ctx, cancel := context.WithTimeout(c.t.Context(), callWait)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, "POST", s.node.Endpoint()+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := httpClient.Do(q)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = resp.Body.Close() // cut short
	}()
	var first string
	for read := bufio.NewReader(resp.Body); lines > 0; lines-- {
		line, err := read.ReadBytes('\n')
		if err != nil {
			c.t.Fatalf("%s: %v after %s%s", s.name, err, first, line)
		}
		first += canonical(line) + "\n"
	}
	return jsonIDs.ReplaceAllString(first, `"$1":"1"`)
}

// TestProfiles compares what is served where profiles are asked for, though not
// the profiles.
func TestProfiles(t *testing.T) {
	var claims []claim
	for _, path := range otherPaths {
		if !strings.HasPrefix(path.path, "/debug/pprof/") || strings.HasSuffix(path.path, "/cmdline") {
			continue // a command line may hold the database's password
		}
		claims = append(claims, claim{path.String(), func(c *checker) {
			var got []string
			for _, s := range c.p.sides() {
				resp, err := httpClient.Get(s.node.Endpoint() + path.path + "?seconds=1")
				if err != nil {
					c.t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					c.t.Error(err)
				}
				if err := resp.Body.Close(); err != nil {
					c.t.Error(err)
				}
				got = append(got, resp.Status+" "+resp.Header.Get("Content-Type")+" "+resp.Header.Get("Content-Disposition"))
			}
			if c.same(path.String(), got) {
				c.rec.webRequest(path.method, path.path, strings.HasPrefix(got[0], "200"))
			}
		}})
	}
	testClaims(t, []string{"--enable-pprof"}, claims)
}

func TestMaintenance(t *testing.T) {
	b := func(s string) []byte { return []byte(s) }
	alarm := func(c *checker, action pb.AlarmRequest_AlarmAction, member uint64, kind pb.AlarmType) *pb.AlarmResponse {
		return response[pb.AlarmResponse](c.ask("Maintenance/Alarm",
			&pb.AlarmRequest{Action: action, MemberID: member, Alarm: kind}))
	}
	testClaims(t, nil, []claim{
		{"a fresh store is at revision 1", func(c *checker) {
			r := c.rng(&pb.RangeRequest{Key: b("a")})
			c.holds(r.Header.GetRevision() == 1, "%v", r)
		}},
		{"cluster and member ids are stable and not zero", func(c *checker) {
			for _, s := range c.p.sides() {
				var before *pb.ResponseHeader
				for range 2 {
					m := s.ask(call{"KV/Range", &pb.RangeRequest{Key: b("a")}}).only()
					if m == nil {
						c.t.Fatal("no answer")
					}
					h := m.(*pb.RangeResponse).Header
					if h.ClusterId == 0 || h.MemberId == 0 || before != nil &&
						(before.ClusterId != h.ClusterId || before.MemberId != h.MemberId) {
						c.t.Errorf("%s: %v, was %v", s.name, h, before)
					}
					before = h
					s.node.Stop()
					s.node.Start()
				}
			}
		}},
		{"Defragment and MoveLeader answer without header", func(c *checker) {
			r := response[pb.DefragmentResponse](c.ask("Maintenance/Defragment", &pb.DefragmentRequest{}))
			c.holds(r.Header == nil, "%v", r)
			c.askEach("Maintenance/MoveLeader", func(s *side) proto.Message {
				return &pb.MoveLeaderRequest{TargetID: c.member(s).ID}
			})
		}},
		{"bad leader transferee", func(c *checker) {
			c.refused("Maintenance/MoveLeader", &pb.MoveLeaderRequest{TargetID: 7}, codes.FailedPrecondition,
				"etcdserver: bad leader transferee")
		}},
		{"metadata may ask for a leader", func(c *checker) {
			var got []string
			for _, s := range c.p.sides() {
				ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(c.t.Context(), "hasleader", "true"), callWait)
				_, err := pb.NewKVClient(s.conn).Range(ctx, &pb.RangeRequest{Key: b("a")})
				cancel()
				got = append(got, status.Code(err).String())
			}
			c.same("with a leader", got)
		}},
		{"no leader is Unavailable", func(c *checker) {
			c.t.Skip("a cluster of several nodes: etcd alone always leads")
		}},
		{"a request over 1.5 MiB is too large", func(c *checker) {
			c.refused("KV/Put", &pb.PutRequest{Key: b("a"), Value: make([]byte, 1536<<10)}, codes.InvalidArgument,
				"etcdserver: request is too large")
			// The bound is exact but for a few bytes: etcd wraps a request in a header
			// whose length depends on its own member id.
			for over := -40; over <= 0; over++ {
				if over >= -24 && over <= -20 {
					continue
				}
				c.kv("Put", &pb.PutRequest{Key: b("a"), Value: make([]byte, 1536<<10+over)})
				if c.failed() {
					return
				}
			}
			c.kv("Txn", &pb.TxnRequest{Success: []*pb.RequestOp{opsPut("a", string(make([]byte, 1536<<10)))}})
		}},
		{"a request over 2 MiB is gRPC's ResourceExhausted", func(c *checker) {
			c.refused("KV/Put", &pb.PutRequest{Key: b("a"), Value: make([]byte, 2<<20+1000)}, codes.ResourceExhausted,
				"grpc: received message larger than max (2098160 vs. 2097152)")
		}},
		{"NOSPACE refuses Put, writing Txn and Grant; reads and deletes go on; Status lists it", func(c *checker) {
			c.put("a", "1")
			c.grant(1, 3600)
			alarm(c, pb.AlarmRequest_ACTIVATE, 7, pb.AlarmType_NOSPACE)
			const text = "etcdserver: mvcc: database space exceeded"
			c.refused("KV/Put", &pb.PutRequest{Key: b("a")}, codes.ResourceExhausted, text)
			c.refused("KV/Txn", &pb.TxnRequest{Success: []*pb.RequestOp{opsPut("a", "")}}, codes.ResourceExhausted, text)
			c.refused("KV/Txn", &pb.TxnRequest{Failure: []*pb.RequestOp{opsPut("a", "")}}, codes.ResourceExhausted, text)
			c.refused("KV/Txn", &pb.TxnRequest{Success: []*pb.RequestOp{opTxn(
				&pb.TxnRequest{Failure: []*pb.RequestOp{opsPut("a", "")}})}}, codes.ResourceExhausted, text)
			c.refused("Lease/LeaseGrant", &pb.LeaseGrantRequest{ID: 2, TTL: 100}, codes.ResourceExhausted, text)
			c.get("a")
			c.then(opsGet("a", ""))
			c.ask("Lease/LeaseKeepAlive", &pb.LeaseKeepAliveRequest{ID: 1})
			c.ask("Lease/LeaseLeases", &pb.LeaseLeasesRequest{})
			st := response[pb.StatusResponse](c.ask("Maintenance/Status", &pb.StatusRequest{}))
			c.holds(len(st.Errors) == 1, "%v", st)
			c.holds(c.then(opsDelete("a", "")).Header != nil, "a transaction that deletes")
			c.del("a", "")
			c.revoke(1)
			c.compact(c.revision, false)
			alarm(c, pb.AlarmRequest_DEACTIVATE, 7, pb.AlarmType_NOSPACE)
			c.put("a", "2")
		}},
		{"CORRUPT refuses every write, DataLoss; reads go on", func(c *checker) {
			c.put("a", "1")
			c.grant(1, 3600)
			alarm(c, pb.AlarmRequest_ACTIVATE, 7, pb.AlarmType_CORRUPT)
			const text = "etcdserver: corrupt cluster"
			for _, q := range []call{
				{"KV/Put", &pb.PutRequest{Key: b("a")}}, {"KV/DeleteRange", &pb.DeleteRangeRequest{Key: b("a")}},
				{"KV/Txn", &pb.TxnRequest{Success: []*pb.RequestOp{opsDelete("a", "")}}},
				{"KV/Compact", &pb.CompactionRequest{Revision: 1}}, {"Lease/LeaseGrant", &pb.LeaseGrantRequest{ID: 2, TTL: 100}},
				{"Lease/LeaseRevoke", &pb.LeaseRevokeRequest{ID: 1}},
			} {
				c.refused(q.method, q.req, codes.DataLoss, text)
			}
			c.get("a")
			c.rng(&pb.RangeRequest{Key: b("a"), Serializable: true})
			c.kv("RangeStream", &pb.RangeRequest{Key: b("a")})
			c.then(opsGet("a", ""))
			c.txn(&pb.TxnRequest{})
			c.watch(0, &pb.WatchCreateRequest{Key: b("a"), StartRevision: c.revision})
			for _, q := range []call{
				{"Lease/LeaseKeepAlive", &pb.LeaseKeepAliveRequest{ID: 1}},
				{"Lease/LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: 1, Keys: true}},
				{"Lease/LeaseLeases", &pb.LeaseLeasesRequest{}},
				{"Maintenance/Status", &pb.StatusRequest{}}, {"Maintenance/HashKV", &pb.HashKVRequest{}},
				{"Maintenance/Hash", &pb.HashRequest{}}, {"Cluster/MemberList", &pb.MemberListRequest{}},
				{"Maintenance/Defragment", &pb.DefragmentRequest{}},
			} {
				c.ask(q.method, q.req)
			}
			alarm(c, pb.AlarmRequest_DEACTIVATE, 7, pb.AlarmType_CORRUPT)
		}},
		{"alarms", func(c *checker) {
			alarm(c, pb.AlarmRequest_GET, 0, pb.AlarmType_NONE)
			for _, member := range []uint64{9, 8, 9} {
				alarm(c, pb.AlarmRequest_ACTIVATE, member, pb.AlarmType_NOSPACE)
			}
			alarm(c, pb.AlarmRequest_GET, 0, pb.AlarmType_NOSPACE)
			alarm(c, pb.AlarmRequest_GET, 9, pb.AlarmType_CORRUPT)
			alarm(c, pb.AlarmRequest_DEACTIVATE, 3, pb.AlarmType_NOSPACE)
			alarm(c, pb.AlarmRequest_DEACTIVATE, 8, pb.AlarmType_NOSPACE)
			alarm(c, pb.AlarmRequest_DEACTIVATE, 9, pb.AlarmType_NONE)
			alarm(c, pb.AlarmRequest_DEACTIVATE, 9, pb.AlarmType_NOSPACE)
			alarm(c, pb.AlarmRequest_GET, 0, pb.AlarmType_NONE)
		}},
		{"Status", func(c *checker) {
			st := response[pb.StatusResponse](c.ask("Maintenance/Status", &pb.StatusRequest{}))
			c.holds(st.Version == "3.7.3" && st.DbSize > 0 && st.DbSizeQuota > 0 && st.DowngradeInfo != nil, "%v", st)
		}},
		{"HashKV", func(c *checker) {
			for i := range 20 {
				c.put(string(rune('a'+i%5)), string(rune('0'+i)))
			}
			c.then(opsPut("x", "1"), opsDelete("a", "c"), opsPut("y", ""))
			for rev := c.revision - 10; rev <= c.revision+1; rev++ {
				c.ask("Maintenance/HashKV", &pb.HashKVRequest{Revision: rev})
			}
			c.compact(c.revision-5, true)
			for rev := c.revision - 4; rev <= c.revision+1; rev++ {
				c.ask("Maintenance/HashKV", &pb.HashKVRequest{Revision: rev})
			}
			c.ask("Maintenance/HashKV", &pb.HashKVRequest{})
			c.ask("Maintenance/HashKV", &pb.HashKVRequest{Revision: -1})
			c.ask("Maintenance/HashKV", &pb.HashKVRequest{Revision: c.compacted - 1})
		}},
		{"Snapshot", func(c *checker) {
			c.snapshots()
			c.aPast()
			c.snapshots()
			c.webSnapshots()
		}},
	})
}
