package mysql

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // of the protocol
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"encoding/pem"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

const thePassword = "S3cr3tPassword"

// stranger is a server of which clients do not know that it is another one. It asks for the
// password in one of MySQL's ways, and reads it if it can.
type stranger struct {
	t        *testing.T
	listener net.Listener
	key      *rsa.PrivateKey
	tls      *tls.Config // nil: none

	greets string // the method in its greeting
	asks   string // the one that it switches to, "" for none
	insist bool   // it sends a key of its own, whatever the client answered

	mu  sync.Mutex
	got bytes.Buffer // what clients sent, decrypted
	wg  sync.WaitGroup
}

func startStranger(t *testing.T, key *rsa.PrivateKey, change func(*stranger)) *stranger {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &stranger{t: t, listener: listener, key: key}
	change(s)
	s.wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() {
				defer conn.Close() //nolint:errcheck // the client notices
				(&session{stranger: s, conn: conn}).serve()
			})
		}
	})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		s.wg.Wait()
	})
	return s
}

// session is a connection of a stranger.
type session struct {
	*stranger
	conn   net.Conn
	number byte // of the next packet
}

func (s *session) send(content ...byte) {
	// a client that left needs no answer
	_, _ = s.conn.Write(append([]byte{byte(len(content)), byte(len(content) >> 8), 0, s.number}, content...))
	s.number++
}

func (s *session) receive() []byte {
	header := make([]byte, 4)
	if _, err := io.ReadFull(s.conn, header); err != nil {
		return nil
	}
	if header[3] != s.number {
		s.t.Errorf("packet %d, want %d", header[3], s.number)
	}
	s.number = header[3] + 1
	content := make([]byte, int(header[0])|int(header[1])<<8|int(header[2])<<16)
	if _, err := io.ReadFull(s.conn, content); err != nil {
		return nil
	}
	s.record(content)
	return content
}

func (s *stranger) record(content []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got.Write(content)
}

var scramble = []byte("abcdefghijklmnopqrst")

func (s *session) serve() {
	flags := uint32(1<<9 | 1<<15 | 1<<19 | 1<<3 | 1) // protocol 4.1, secure connection, plugins, with a database, MySQL
	if s.tls != nil {
		flags |= flagSSL
	}
	greeting := append([]byte{10}, "9.9.9\x00\x01\x00\x00\x00"...)
	greeting = append(append(greeting, scramble[:8]...), 0, byte(flags), byte(flags>>8), 45, 2, 0, byte(flags>>16),
		byte(flags>>24), 21)
	greeting = append(append(append(greeting, make([]byte, 10)...), scramble[8:]...), 0)
	s.send(append(append(greeting, s.greets...), 0)...)
	hello := s.receive()
	if len(hello) == helloLength {
		encrypted := tls.Server(s.conn, s.tls)
		if encrypted.Handshake() != nil {
			return
		}
		s.conn = encrypted
		hello = s.receive()
	}
	if hello == nil {
		return
	}
	method := s.greets
	if s.asks != "" {
		method = s.asks
		s.send(append(append(append([]byte{packetSwitch}, method...), 0), append(scramble, 0)...)...)
		if s.receive() == nil {
			return
		}
	}
	der, err := x509.MarshalPKIXPublicKey(&s.key.PublicKey)
	if err != nil {
		s.t.Error(err)
		return
	}
	key := append([]byte{packetMoreData}, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})...)
	switch {
	case method == methodCached:
		s.send(packetMoreData, 4)
		answer := s.receive()
		if len(answer) == 1 {
			s.send(key...)
			answer = s.receive()
		}
		s.decrypt(answer)
	case method == methodSHA256 || s.insist:
		s.send(key...)
		s.decrypt(s.receive())
	}
	s.send(packetOK, 0, 0, 2, 0, 0, 0)
	s.commands()
}

// decrypt notes the password that was encrypted by this server's key.
func (s *session) decrypt(answer []byte) {
	plain, err := rsa.DecryptOAEP(sha1.New(), rand.Reader, s.key, answer, nil) //nolint:gosec // of the protocol
	if err != nil {
		return
	}
	for i := range plain {
		plain[i] ^= scramble[i%len(scramble)]
	}
	s.record(plain)
}

// commands answers the driver's first question, and all pings.
func (s *session) commands() {
	for {
		s.number = 0
		switch command := s.receive(); {
		case command == nil:
			return
		case command[0] == 3: // the size of packets
			s.send(1)
			s.send(append(append([]byte("\x03def\x00\x00\x00\x01v\x00\x0c"), 45, 0, 20, 0, 0, 0), 0xfd, 0, 0, 0, 0, 0)...)
			s.send(packetSwitch, 0, 0, 2, 0)
			s.send(append([]byte{8}, "67108864"...)...)
			s.send(packetSwitch, 0, 0, 2, 0)
		default:
			s.send(packetOK, 0, 0, 2, 0, 0, 0)
		}
	}
}

// read reports whether the stranger has the password.
func (s *stranger) read() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Contains(s.got.Bytes(), []byte(thePassword))
}

// remote is a connection to another machine, as it seems.
type remote struct{ *net.TCPConn }

func (remote) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 3306} }

// asRemote makes c take its server for one of another machine.
func asRemote(c *connector) *connector {
	dial := c.dial
	c.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return remote{conn.(*net.TCPConn)}, nil
	}
	return c
}

// connectorOf returns a connector to raw, which seems to name a server of another machine unless local.
func connectorOf(t *testing.T, raw string, local bool) *connector {
	t.Helper()
	u := parse(t, raw)
	cfg, err := configOf(u)
	require.NoError(t, err)
	c, err := newConnector(u, cfg)
	require.NoError(t, err)
	if !local {
		asRemote(c)
	}
	return c
}

func ping(t *testing.T, c *connector) error {
	db := sql.OpenDB(c)
	defer func() { require.NoError(t, db.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return db.PingContext(ctx)
}

func newKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	return key
}

func writePublicKey(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key.pem")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// TestUserWithoutAPasswordLogsInOverTLS: the driver answers a change of the method with an empty packet.
func TestUserWithoutAPasswordLogsInOverTLS(t *testing.T) {
	t.Parallel()
	pair, err := tls.LoadX509KeyPair(writeCertificate(t))
	require.NoError(t, err)
	s := startStranger(t, newKey(t), func(s *stranger) {
		s.greets, s.asks, s.tls = methodCached, methodNative, &tls.Config{Certificates: []tls.Certificate{pair}}
	})
	if err := ping(t, connectorOf(t, "mysql://u@"+s.listener.Addr().String()+"/n?timeout=1m&tls=skip-verify",
		false)); err != nil {
		t.Error(err)
	}
}

// TestStrangersDoNotGetThePassword: whatever a server asks for that nobody has verified.
func TestStrangersDoNotGetThePassword(t *testing.T) {
	t.Parallel()
	key, other := newKey(t), newKey(t)
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	require.NoError(t, err)
	known := "server-public-key=" + writePublicKey(t,
		string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	certFile, keyFile := writeCertificate(t)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(t, err)
	encrypted := &tls.Config{Certificates: []tls.Certificate{pair}}

	as := func(greets, asks string, with *tls.Config) func(*stranger) {
		return func(s *stranger) { s.greets, s.asks, s.tls = greets, asks, with }
	}

	const refused, accepted = "before the password was sent", ""
	for name, c := range map[string]struct {
		params  string
		key     *rsa.PrivateKey
		change  func(*stranger)
		local   bool
		want    string // a part of the error, "" for none
		knowing bool   // the server gets the password, and may
	}{
		"a challenge":                          {"", other, as(methodNative, "", nil), false, accepted, false},
		"another challenge":                    {"", other, as(methodCached, methodNative, nil), false, accepted, false},
		"the password":                         {"", other, as(methodCached, "", nil), false, refused, false},
		"the password, by a switch":            {"", other, as(methodNative, methodCached, nil), false, refused, false},
		"the password, by the older method":    {"", other, as(methodSHA256, "", nil), false, refused, false},
		"a switch to the older method":         {"", other, as(methodNative, methodSHA256, nil), false, refused, false},
		"clear text":                           {"", other, as(methodNative, methodClearText, nil), false, refused, false},
		"the oldest method":                    {"", other, as(methodNative, methodOld, nil), false, refused, false},
		"what was not announced":               {"", other, func(s *stranger) { s.greets, s.insist = methodNative, true }, false, refused, false},
		"a challenge inside TLS":               {"tls=skip-verify", other, as(methodNative, "", encrypted), false, accepted, false},
		"another challenge inside TLS":         {"tls=preferred", other, as(methodCached, methodNative, encrypted), false, accepted, false},
		"the password inside TLS":              {"tls=skip-verify", other, as(methodCached, "", encrypted), false, refused, false},
		"the older method inside TLS":          {"tls=preferred", other, as(methodNative, methodSHA256, encrypted), false, refused, false},
		"clear text inside TLS":                {"tls=preferred", other, as(methodNative, methodClearText, encrypted), false, refused, false},
		"the password, TLS is stripped":        {"tls=preferred", other, as(methodCached, "", nil), false, refused, false},
		"a challenge, TLS is stripped":         {"tls=preferred", other, as(methodNative, "", nil), false, accepted, false},
		"a challenge, without TLS":             {"tls=skip-verify", other, as(methodNative, "", nil), false, mysql.ErrNoTLS.Error(), false},
		"the password, its key is another":     {known, other, as(methodCached, "", nil), false, accepted, false},
		"the older method, its key is another": {known, other, as(methodSHA256, "", nil), false, refused, false},
		"a switch, its key is another":         {known, other, as(methodCached, methodSHA256, nil), false, refused, false},
		"the password, its key is known":       {known, key, as(methodCached, "", nil), false, accepted, true},
		"the password, on this machine":        {"", other, as(methodCached, "", nil), true, accepted, true},
		"the older method, on this machine":    {"", other, as(methodSHA256, "", nil), true, accepted, true},
		"clear text, on this machine":          {"", other, as(methodNative, methodClearText, nil), true, "clear text", false},
		"the password of a false server":       {"tls=true", other, as(methodCached, "", encrypted), false, "certificate", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startStranger(t, c.key, c.change)
			raw := "mysql://u:" + thePassword + "@" + s.listener.Addr().String() + "/n?timeout=1m&" + c.params
			err := ping(t, connectorOf(t, raw, c.local))
			if c.want == accepted {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
				require.NotContains(t, err.Error(), thePassword)
			}
			if c.want == refused { // it says what to do
				require.ErrorContains(t, err, "tls=true")
				require.ErrorContains(t, err, "server-public-key")
			}
			require.Equal(t, c.knowing, s.read(), "the server has the password")
		})
	}
}

// TestLoginsOfServers: what real servers ask for is answered as far as they are known.
func TestLoginsOfServers(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, p enginetest.Product) {
		server := p.StartServer(t)
		raw := ordinaryUser(t, server.URL())
		asks := false // for the password
		known := ""
		db, err := OpenDB(parse(t, server.URL()), sqlstore.Options{})
		require.NoError(t, err)
		var name string
		switch err := db.SQL().QueryRowContext(t.Context(), "SHOW STATUS LIKE 'Caching_sha2_password_rsa_public_key'").Scan(
			&name, &known); err {
		case nil:
			asks = true
		case sql.ErrNoRows: // not MySQL
		default:
			t.Fatal(err)
		}
		require.NoError(t, db.Close())
		for _, params := range []string{"", "?tls=preferred", "?tls=skip-verify"} {
			err := ping(t, connectorOf(t, raw+params, false))
			refused := err != nil && strings.Contains(err.Error(), "before the password was sent")
			if refused != asks || err != nil && !refused && params != "?tls=skip-verify" {
				t.Errorf("%q: %v", params, err)
			}
		}
		require.NoError(t, ping(t, connectorOf(t, raw, true)), "on this machine")
		if asks {
			c := connectorOf(t, raw+"?server-public-key="+writePublicKey(t, known), false)
			require.NoError(t, ping(t, c), "with the server's key")
		}
	})
}

func TestServerKeys(t *testing.T) {
	t.Parallel()
	cert, key := writeCertificate(t)
	for _, path := range []string{"/nonexistent", cert, key, writePublicKey(t, "no key")} {
		u := parse(t, "mysql://u:p@h/n?server-public-key="+path)
		if _, err := configOf(u); err == nil || !strings.Contains(err.Error(), "server-public-key") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
