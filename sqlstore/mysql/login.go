package mysql

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Of MySQL's protocol: the first byte of what a server sends while a client logs in, and flags of
// its greeting.
const (
	packetOK       = 0x00
	packetMoreData = 0x01
	packetSwitch   = 0xfe
	packetError    = 0xff

	headerLength = 4
	flagSSL      = 1 << 11
	// helloLength is how many bytes of its first packet a client sends before TLS starts.
	helloLength = 32
	// maxLoginPacket bounds what a server sends while a client logs in, which is some hundred bytes.
	maxLoginPacket = 1 << 16
	scrambleLength = 20
)

// Methods of authentication, by the plugin's name.
const (
	methodNative    = "mysql_native_password"
	methodCached    = "caching_sha2_password"
	methodSHA256    = "sha256_password"
	methodOld       = "mysql_old_password"
	methodClearText = "mysql_clear_password"
)

var errLoginPacket = errors.New("mysql: the server sent a packet that makes no sense while a client logs in")

// login is a connection to a server of which is not known that it is the right one. The driver
// would send such a server the password, in clear text or encrypted by a key that the server has
// just sent, if it asks for that. login ends the connection before. It lets through what a stranger
// cannot read: challenges and responses, and a password that was encrypted by the server's known key.
//
// So that it sees what the server asks for inside TLS, it starts TLS itself. The driver takes the
// connection for a plain one. Packets have numbers, and the driver does not know of the one with
// which TLS starts.
type login struct {
	net.Conn             // what packets are read from and written to
	tcp      net.Conn    // under TLS
	tls      *tls.Config // nil: none
	optional bool        // the server need not support TLS
	keyed    bool        // the driver has the server's public key
	timeout  time.Duration

	greeted bool
	done    bool // the server accepted or refused the login
	skipped byte // packets that the driver does not know of
	method  string
	unread  []byte // of a packet
	err     error  // why the connection was ended
}

// Read implements net.Conn.
func (l *login) Read(b []byte) (int, error) {
	if l.err != nil {
		return 0, l.err
	}
	if len(l.unread) == 0 {
		if l.done {
			return l.Conn.Read(b)
		}
		if err := l.receive(); err != nil {
			return 0, err
		}
	}
	n := copy(b, l.unread)
	l.unread = l.unread[n:]
	return n, nil
}

// receive reads a packet.
func (l *login) receive() error {
	var header [headerLength]byte
	if _, err := io.ReadFull(l.Conn, header[:]); err != nil {
		return err
	}
	length := int(header[0]) | int(header[1])<<8 | int(header[2])<<16
	if length == 0 || length > maxLoginPacket {
		return errLoginPacket
	}
	header[3] -= l.skipped
	l.unread = append(header[:], make([]byte, length)...)
	content := l.unread[headerLength:]
	if _, err := io.ReadFull(l.Conn, content); err != nil {
		return err
	}
	if l.greeted || content[0] == packetError {
		l.err = l.answer(content)
	} else {
		l.greeted, l.err = true, l.greeting(content)
	}
	return l.err
}

// greeting reads the first packet, and decides whether there will be TLS.
func (l *login) greeting(content []byte) error {
	version := bytes.IndexByte(content, 0)
	flags := version + 1 + 4 + 8 + 1 // after the connection's id and a part of the scramble
	const rest = 2 + 3 + 2 + 11 + 13 // flags, character set, status, flags, the rest of the scramble
	if version < 1 || len(content) < flags+rest {
		return errLoginPacket
	}
	method, _, _ := bytes.Cut(content[flags+rest:], []byte{0})
	l.method = string(method)
	if l.tls != nil && binary.LittleEndian.Uint16(content[flags:])&flagSSL == 0 {
		if !l.optional {
			return mysql.ErrNoTLS
		}
		l.tls = nil
	}
	return nil
}

// answer refuses to continue if the server asks for what it could read.
func (l *login) answer(content []byte) error {
	switch content[0] {
	case packetOK, packetError:
		l.done = true
	case packetSwitch:
		method, scramble, _ := bytes.Cut(content[1:], []byte{0})
		if l.method = string(method); len(content) == 1 {
			l.method = methodOld
		}
		switch l.method {
		case methodClearText, methodOld:
			return l.refuse()
		case methodSHA256:
			if !l.keyed {
				return l.refuse()
			}
		}
		if l.method == methodNative && len(scramble) < scrambleLength {
			return errLoginPacket // the driver relies on the length
		}
	case packetMoreData:
		// Of caching_sha2_password only: the server has the password in its cache, or asks for it. Without its
		// key that is refused in both cases: else a server that was restarted would refuse who logged in before.
		if l.method != methodCached || !l.keyed {
			return l.refuse()
		}
	}
	return nil
}

func (l *login) refuse() error {
	return fmt.Errorf("mysql: the login was ended before the password was sent: the server at %s asks for it by %s, and "+
		"it was not verified, so that whoever answers there could read it. "+
		"Add tls=true to the database's URL, and tls-ca=FILE if a private authority signed the server's certificate; "+
		"without TLS, add server-public-key=FILE, which holds what the server has as Caching_sha2_password_rsa_public_key "+
		"in SHOW STATUS", l.tcp.RemoteAddr(), l.method)
}

// Write implements net.Conn. The driver writes a packet at a time.
func (l *login) Write(b []byte) (int, error) {
	if l.err != nil {
		return 0, l.err
	}
	if l.done || l.tls == nil {
		return l.Conn.Write(b)
	}
	if len(b) < headerLength || l.skipped == 0 && len(b) < headerLength+helloLength {
		l.err = errLoginPacket // of the driver's
		return 0, l.err
	}
	packet := bytes.Clone(b)
	if l.skipped == 0 {
		packet[headerLength+1] |= flagSSL >> 8
		if err := l.startTLS(packet); err != nil {
			l.err = err
			return 0, err
		}
	}
	packet[3] += l.skipped
	if _, err := l.Conn.Write(packet); err != nil {
		return 0, err
	}
	return len(b), nil
}

// startTLS sends the beginning of the client's first packet, and encrypts the connection.
func (l *login) startTLS(packet []byte) error {
	hello := bytes.Clone(packet[:headerLength+helloLength])
	hello[0], hello[1], hello[2] = helloLength, 0, 0
	if _, err := l.tcp.Write(hello); err != nil {
		return err
	}
	if err := l.tcp.SetDeadline(time.Now().Add(l.timeout)); err != nil {
		return err
	}
	encrypted := tls.Client(l.tcp, l.tls)
	if err := encrypted.Handshake(); err != nil {
		return err
	}
	l.Conn, l.skipped = encrypted, 1
	return l.tcp.SetDeadline(time.Time{})
}

// Close implements net.Conn. It may be called while another call runs.
func (l *login) Close() error { return l.tcp.Close() }

// SyscallConn implements syscall.Conn, by which the driver finds out that the server closed an idle connection.
func (l *login) SyscallConn() (syscall.RawConn, error) {
	conn, ok := l.tcp.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return conn.SyscallConn()
}
