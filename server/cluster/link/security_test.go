package link

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles/tlstest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// caller is the id of the member that connects; member is the one that is reached.
const caller = memberID + 1

// process is one process of a member.
type process struct {
	*Security
	member.Member
	table *table // as this process sees it
	log   *eventually.Log
}

func newProcess(t *testing.T, id, incarnation uint64, change ...func(*SecurityConfig, *tlsfiles.Config)) *process {
	t.Helper()
	p := &process{table: &table{}, log: &eventually.Log{}}
	cfg := SecurityConfig{Members: p.table, Logger: slog.New(slog.NewTextHandler(p.log, nil))}
	var files tlsfiles.Config
	for _, c := range change {
		c(&cfg, &files)
	}
	var err error
	cfg.Certificate, err = NewCertificate(files, cfg.Logger)
	require.NoError(t, err)
	p.Security = NewSecurity(cfg)
	p.Member = member.Member{ID: id, Name: "n" + hexID(id), Version: "1", Incarnation: incarnation,
		Fingerprint: cfg.Certificate.Fingerprint()}
	return p
}

// introduce makes processes the members, and has all of them see each other.
func introduce(processes ...*process) {
	var members []member.Member
	for _, p := range processes {
		members = append(members, p.Member)
	}
	for _, p := range processes {
		p.table.set(members...)
		_ = p.table.Refresh(context.Background()) // a table without an error has none
	}
}

// listen serves p as the member `member`.
func (p *process) listen(t *testing.T) (peerURL string) {
	return serve(t, grpc.Creds(p.Accept()))
}

// client returns p's client for the member `member`.
func (p *process) client(t *testing.T, peerURL string) *Client {
	return newClient(t, peerURL, func(c *Config) { c.Security, c.Logger = p.Security, p.cfg.Logger })
}

// requireLogged waits for words in the log: the two sides of a connection end
// independently.
func (p *process) requireLogged(t *testing.T, words string) {
	t.Helper()
	eventually.True(t, "the log to have "+words, func() bool { return strings.Contains(p.log.String(), words) })
}

func (p *process) ask(t *testing.T, peerURL string) error {
	return ask(testContext(t), p.client(t, peerURL))
}

func TestMembersAuthenticateEachOther(t *testing.T) {
	server, client := newProcess(t, memberID, 1), newProcess(t, caller, 1)
	introduce(server, client)
	peerURL := server.listen(t)
	require.NoError(t, client.ask(t, peerURL))
	require.NoError(t, client.ask(t, strings.Replace(peerURL, "http:", "https:", 1)), "the scheme makes no difference")
	require.Equal(t, 1, server.table.looks(), "known members cost no look at the table")
	require.Equal(t, 1, client.table.looks())
}

func TestOnlyMembersAreAccepted(t *testing.T) {
	server, client := newProcess(t, memberID, 1), newProcess(t, caller, 1)
	introduce(server, client)
	peerURL := server.listen(t)
	stranger := newProcess(t, caller, 1)
	stranger.table.set(server.Member)
	require.Error(t, stranger.client(t, peerURL).Probe(testContext(t)))
	server.requireLogged(t, "not that of a current member")
	stranger.requireLogged(t, "the member rejected the connection")
	require.Equal(t, 2, server.table.looks(), "one look for the certificate that it does not know")
	require.InEpsilon(t, 1, testutil.ToFloat64(server.Rejections()), 0)

	host := strings.TrimPrefix(peerURL, "http://")
	call := func(c credentials.TransportCredentials) error {
		conn, err := grpc.NewClient(host, grpc.WithTransportCredentials(c))
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		return conn.Invoke(address(testContext(t), cluster, memberID), healthpb.Health_Check_FullMethodName,
			&emptypb.Empty{}, &emptypb.Empty{})
	}
	require.Equal(t, codes.Unavailable, status.Code(call(insecure.NewCredentials())), "no TLS, with the right cluster id")
	require.Equal(t, codes.Unavailable, status.Code(call(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}))),
		"no certificate")
	require.Equal(t, codes.Unavailable, status.Code(call(credentials.NewTLS(&tls.Config{
		InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12,
		Certificates: []tls.Certificate{client.cfg.Certificate.current()},
	}))), "a member's certificate over TLS 1.2")
	require.NoError(t, client.ask(t, peerURL))

	introduce(server)
	require.Error(t, client.ask(t, peerURL), "a member that was removed")
}

// A process that just started is in the table, and the others have not seen it yet.
func TestAMemberThatJustStartedIsAcceptedAtOnce(t *testing.T) {
	server, client := newProcess(t, memberID, 1), newProcess(t, caller, 1)
	introduce(server, client)
	peerURL := server.listen(t)
	restarted := newProcess(t, caller, 2)
	server.table.set(server.Member, restarted.Member)
	restarted.table.set(server.Member, restarted.Member)
	require.NoError(t, restarted.ask(t, peerURL))
	require.Equal(t, 2, server.table.looks())
	require.Error(t, client.ask(t, peerURL), "the process that it replaced")
}

func TestADialerFindsAMemberThatRestarted(t *testing.T) {
	old, server, client := newProcess(t, memberID, 1), newProcess(t, memberID, 2), newProcess(t, caller, 1)
	introduce(old, client)
	introduce(server)
	server.table.set(server.Member, client.Member)
	client.table.set(server.Member, client.Member)
	require.NoError(t, client.ask(t, server.listen(t)), "the first attempt succeeds")
}

func TestDialerRejectsOtherProcesses(t *testing.T) {
	server, other, client := newProcess(t, memberID, 1), newProcess(t, 0xbb, 1), newProcess(t, caller, 1)
	introduce(server, other, client)
	peerURL := other.listen(t)
	require.ErrorIs(t, client.ask(t, peerURL), ErrOtherNode)
	client.requireLogged(t, `it has the certificate of member \"nbb\" (bb)`)
	client.requireLogged(t, "--initial-advertise-peer-urls")
	client.requireLogged(t, peerURL)
	client.requireLogged(t, "member="+server.Name)

	require.ErrorIs(t, client.ask(t, newProcess(t, memberID, 1).listen(t)), ErrOtherNode, "a process that is no member")
	client.requireLogged(t, "no member has published")
}

func TestFailuresAreLoggedOncePerChange(t *testing.T) {
	server, client := newProcess(t, memberID, 1), newProcess(t, caller, 1)
	introduce(server, client)
	p := newPool(t, func(c *Config) { c.Security, c.Logger = client.Security, client.cfg.Logger })
	c, err := p.Member(memberID, []string{closedPort(t)})
	require.NoError(t, err)
	for range 20 {
		require.Error(t, c.Probe(testContext(t)))
	}
	require.Equal(t, 1, strings.Count(client.log.String(), "cannot connect to a member"), client.log)
	require.InEpsilon(t, 20, testutil.ToFloat64(p.outcomes.WithLabelValues(outcomeRefused)), 0)
}

func TestRevokedMembersLoseTheirConnections(t *testing.T) {
	for name, now := range map[string]func(server, client *process) []member.Member{
		"removed": func(server, _ *process) []member.Member { return []member.Member{server.Member} },
		"replaced": func(server, client *process) []member.Member {
			m := client.Member
			m.Incarnation++
			return []member.Member{server.Member, m}
		},
	} {
		t.Run(name, func(t *testing.T) {
			server, client := newProcess(t, memberID, 1), newProcess(t, caller, 1)
			introduce(server, client)
			s := open(t, client.client(t, server.listen(t)))
			server.Revoke()
			requireOpen(t, s, "members keep theirs")
			server.table.set(now(server, client)...)
			require.NoError(t, server.table.Refresh(t.Context()))
			server.Revoke()
			requireEnds(t, s)
			server.mu.Lock()
			defer server.mu.Unlock()
			require.Empty(t, server.accepted)
		})
	}
}

func TestPoolDropsProcessesThatWereReplaced(t *testing.T) {
	server, client := newProcess(t, memberID, 1), newProcess(t, caller, 1)
	introduce(server, client)
	p := newPool(t, func(c *Config) { c.Security = client.Security })
	urls := []string{server.listen(t)}
	s := open(t, must(p.Member(memberID, urls)))
	p.Revoke()
	requireOpen(t, s)
	next := newProcess(t, memberID, 2)
	client.table.set(next.Member, client.Member)
	require.NoError(t, client.table.Refresh(t.Context()))
	p.Revoke()
	requireEnds(t, s)
	require.ErrorIs(t, ask(testContext(t), must(p.Member(memberID, urls))), ErrOtherNode)
}

// TestHandshakesAreBounded: members get in while others, who never finish, have all the handshakes there may be. Of
// these the oldest ends.
func TestHandshakesAreBounded(t *testing.T) {
	server, client := newProcess(t, memberID, 1), newProcess(t, caller, 1)
	introduce(server, client)
	at := server.listen(t)
	u, err := url.Parse(at)
	require.NoError(t, err)
	pending := func() int {
		server.mu.Lock()
		defer server.mu.Unlock()
		return len(server.pending)
	}
	var held []net.Conn
	for i := range maxPending {
		c, err := net.Dial("tcp", u.Host)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		held = append(held, c)
		eventually.True(t, "the handshake to begin", func() bool { return pending() == i+1 })
	}
	require.NoError(t, client.ask(t, at))
	require.NoError(t, held[0].SetReadDeadline(time.Now().Add(eventually.Deadline)))
	_, err = held[0].Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the oldest has ended")
	require.Less(t, pending(), maxPending)
}

func TestKnownMembersNeedNoDatabase(t *testing.T) {
	server, client := newProcess(t, memberID, 1), newProcess(t, caller, 1)
	introduce(server, client)
	peerURL := server.listen(t)
	server.table.err = errors.New("the database is away")
	require.NoError(t, client.ask(t, peerURL))
	stranger := newProcess(t, caller, 1)
	stranger.table.set(server.Member)
	require.Error(t, stranger.ask(t, peerURL))
	server.requireLogged(t, "the database is away")
}

// files configures certificates of an authority.
func files(t *testing.T, trusted, issuer *tlstest.Authority,
	change ...func(*tlsfiles.Config)) (tlstest.Dir, func(*SecurityConfig, *tlsfiles.Config)) {
	d := tlstest.NewDir(t)
	d.Write(t, issuer, "member")
	d.Trust(t, trusted)
	d.ClientCertAuth = true
	for _, c := range change {
		c(&d.Config)
	}
	return d, func(_ *SecurityConfig, c *tlsfiles.Config) { *c = d.Config }
}

func TestConfiguredCertificatesArePinnedToo(t *testing.T) {
	ca, others := tlstest.NewAuthority(t, "ca"), tlstest.NewAuthority(t, "others")
	with := func(id uint64, trusted, issuer *tlstest.Authority, change ...func(*tlsfiles.Config)) *process {
		_, configured := files(t, trusted, issuer, change...)
		return newProcess(t, id, 1, configured)
	}
	cn := func(name string) func(*tlsfiles.Config) {
		return func(c *tlsfiles.Config) { c.AllowedCNs = []string{"x", name} }
	}
	host := func(name string) func(*tlsfiles.Config) {
		return func(c *tlsfiles.Config) { c.AllowedHostnames = []string{"x", name} }
	}
	for name, c := range map[string]struct {
		server, client *process
		ok             bool
	}{
		"one authority":            {with(memberID, ca, ca), with(caller, ca, ca), true},
		"a client of another":      {with(memberID, ca, ca), with(caller, ca, others), false},
		"a server of another":      {with(memberID, ca, others), with(caller, ca, ca), false},
		"a client without files":   {with(memberID, ca, ca), newProcess(t, caller, 1), false},
		"a common name":            {with(memberID, ca, ca, cn("member")), with(caller, ca, ca, cn("member")), true},
		"the client's common name": {with(memberID, ca, ca, cn("y")), with(caller, ca, ca), false},
		"the server's common name": {with(memberID, ca, ca), with(caller, ca, ca, cn("y")), false},
		"a host name": {with(memberID, ca, ca, host("127.0.0.1")), with(caller, ca, ca, host("127.0.0.1")),
			true},
		"the client's host name": {with(memberID, ca, ca, host("10.0.0.1")), with(caller, ca, ca), false},
		"the server's host name": {with(memberID, ca, ca), with(caller, ca, ca, host("10.0.0.1")), false},
		"older TLS than is required": {with(memberID, ca, ca, func(c *tlsfiles.Config) { c.MaxVersion = tls.VersionTLS12 }),
			with(caller, ca, ca), true},
	} {
		t.Run(name, func(t *testing.T) {
			introduce(c.server, c.client)
			if err := c.client.ask(t, c.server.listen(t)); c.ok {
				require.NoError(t, err)
			} else {
				require.Error(t, err)
			}
		})
	}
	// A certificate of the authority that no member has published.
	server, client := with(memberID, ca, ca), with(caller, ca, ca)
	introduce(server)
	client.table.set(server.Member, client.Member)
	require.Error(t, client.ask(t, server.listen(t)))
	server.requireLogged(t, "not that of a current member")
}

func TestMembersMayShareACertificate(t *testing.T) {
	_, configured := files(t, tlstest.NewAuthority(t, "ca"), tlstest.NewAuthority(t, "ca"), func(c *tlsfiles.Config) {
		c.TrustedCAFile, c.ClientCertAuth = "", false
	})
	server, client, third := newProcess(t, memberID, 1, configured), newProcess(t, caller, 1, configured),
		newProcess(t, 0x1, 1, configured)
	introduce(third, server, client)
	s := open(t, client.client(t, server.listen(t)))
	third.Incarnation++
	introduce(third, server, client)
	server.Revoke()
	requireOpen(t, s, "another member with the certificate restarted")
}

func TestFilesThatChangeArePublishedBeforeTheyAreShown(t *testing.T) {
	ca := tlstest.NewAuthority(t, "ca")
	dir, configured := files(t, ca, ca)
	server := newProcess(t, memberID, 1, configured)
	_, configured = files(t, ca, ca)
	client := newProcess(t, caller, 1, configured)
	introduce(server, client)
	peerURL := server.listen(t)
	s := open(t, client.client(t, peerURL))

	dir.Write(t, ca, "member")
	require.NoError(t, client.ask(t, peerURL), "the old one is shown until the new one is published")
	renewed := server.cfg.Certificate.Fingerprint()
	require.NotEqual(t, server.Fingerprint, renewed)
	server.cfg.Certificate.Published(server.Fingerprint)
	require.NoError(t, client.ask(t, peerURL))

	server.Fingerprint = renewed
	introduce(server, client)
	server.cfg.Certificate.Published(renewed)
	require.NoError(t, client.ask(t, peerURL))
	server.Revoke()
	requireOpen(t, s, "connections of the same process stay")

	_, err := NewCertificate(tlsfiles.Config{CertFile: "a"}, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "both a certificate file and a key file")
}

// A client that says nothing, or nothing that makes sense, is bounded by gRPC's
// timeout of connections.
func TestAcceptorsLeaveNoConnectionsBehind(t *testing.T) {
	server, client := newProcess(t, memberID, 1), newProcess(t, caller, 1)
	introduce(server, client)
	peerURL := serve(t, grpc.Creds(server.Accept()), grpc.ConnectionTimeout(100*time.Millisecond))
	d := newDialer(memberID, must(parseURLs([]string{peerURL})),
		newPool(t, func(c *Config) { c.Security = client.Security }))
	for _, words := range []string{"", "GET / HTTP/1.1\r\n\r\n" + strings.Repeat("x", 100)} {
		address := strings.TrimPrefix(peerURL, "http://")
		var conn net.Conn
		// its time may be over before the handshake is
		eventually.Nil(t, eventually.Deadline, func(ctx context.Context) error {
			raw, err := d.dial(ctx, address)
			require.NoError(t, err)
			require.IsType(t, &net.TCPConn{}, raw, "gRPC bounds how long its data may go unacknowledged")
			if conn, err = d.handshake(ctx, address, raw); err != nil {
				_ = raw.Close()
			}
			return err
		})
		_, err := conn.Write([]byte(words))
		for err == nil {
			_, err = conn.Read(make([]byte, 100))
		}
		_ = conn.Close() // to a server that has closed it already
	}
	mute, err := net.Dial("tcp", strings.TrimPrefix(peerURL, "http://"))
	require.NoError(t, err)
	_, err = mute.Read(make([]byte, 1))
	require.Error(t, err)
	require.NoError(t, mute.Close())
	eventually.True(t, "the connections to be closed", func() bool {
		server.mu.Lock()
		defer server.mu.Unlock()
		return len(server.accepted) == 0
	})
}
