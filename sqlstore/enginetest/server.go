package enginetest

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Server is a database server that belongs to one test. Its methods end the
// test when they fail, so they are for the test's own goroutine.
type Server struct {
	t   testing.TB
	p   *instance
	url string
}

// StartServer starts a server, which is killed and removed when t ends, and
// creates an empty database on it. It never uses a server that the environment
// names.
func (p Product) StartServer(t testing.TB) *Server {
	t.Helper()
	return startServer(t, p.startable())
}

// StartServer is Product.StartServer for a test of MySQL or MariaDB, either of them.
func StartServer(t testing.TB) *Server {
	t.Helper()
	return local().StartServer(t)
}

// startable is the product, or, of a TiDB whose program is not known, another one.
func (p Product) startable() Product {
	if _, err := p.Program(); p == tidb && err != nil {
		return local()
	}
	return p
}

func startServer(t testing.TB, product Product) *Server {
	t.Helper()
	p, err := newInstance(product)
	if err != nil {
		Need(t, err, ErrNoEngine)
	}
	t.Cleanup(func() {
		if err := p.kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			// Not to t, so that the failure is printed after the log.
			fmt.Fprintf(os.Stderr, "%s: end of the database server's log:\n%s\n", t.Name(), p.logTail())
		}
		if err := p.remove(); err != nil {
			t.Error(err)
		}
	})
	require.NoError(t, p.start())
	s := &Server{t: t, p: p}
	s.url = p.url("sqlbrain")
	Exec(t, p.url(""), "CREATE DATABASE sqlbrain")
	return s
}

// URL returns the URL, for root, of the database made by StartServer. It stays
// the same when the server is started again.
func (s *Server) URL() string { return s.url }

// ID returns the id of the server's process, which runs.
func (s *Server) ID() int { return s.p.program.ID() }

// NewDatabase returns the URL of another empty database on this server.
func (s *Server) NewDatabase(name string) string {
	s.t.Helper()
	Exec(s.t, s.p.url(""), "CREATE DATABASE `"+name+"`")
	return s.p.url(name)
}

// Start starts the server again on the same data and port, after Stop or Kill,
// and returns when it answers.
func (s *Server) Start() { s.t.Helper(); s.must(s.p.start()) }

// Stop shuts the server down in order (SIGTERM) and waits for its end.
func (s *Server) Stop() { s.t.Helper(); s.must(s.p.stop()) }

// Kill ends the server at once (SIGKILL).
func (s *Server) Kill() { s.t.Helper(); s.must(s.p.kill()) }

// Pause freezes the server (SIGSTOP): connections can be opened and stay open, and the
// server does not answer.
func (s *Server) Pause() { s.t.Helper(); s.must(s.p.pause()) }

// Resume ends a Pause (SIGCONT).
func (s *Server) Resume() { s.t.Helper(); s.must(s.p.resume()) }

func (s *Server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}
