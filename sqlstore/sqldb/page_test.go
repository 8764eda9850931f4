package sqldb

import (
	"context"
	"database/sql/driver"
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// sender is a server that sends small rows and then large ones, as many as a statement asks for. drained is the error
// of a statement whose rows are not all needed.
type sender struct {
	small, large int
	sent         int
	drained      error
}

func (s *sender) Connect(context.Context) (driver.Conn, error) { return senderConn{idleConn{}, s}, nil }
func (*sender) Driver() driver.Driver                          { return nil }

type senderConn struct {
	idleConn
	of *sender
}

func (c senderConn) QueryContext(ctx context.Context, _ string, args []driver.NamedValue) (driver.Rows, error) {
	return &sentRows{ctx: ctx, of: c.of, left: int(args[2].Value.(int64))}, nil
}

type sentRows struct {
	ctx     context.Context
	of      *sender
	n, left int
}

func (*sentRows) Columns() []string { return []string{"internal_key", "index", "version"} }

func (r *sentRows) Next(row []driver.Value) error {
	if r.left == 0 {
		return io.EOF
	}
	size := 1
	if r.n >= r.of.small {
		size = r.of.large
	}
	r.n, r.left, r.of.sent = r.n+1, r.left-1, r.of.sent+size
	row[0], row[1], row[2] = []byte("k"), []byte("i"), make([]byte, size)
	return nil
}

// Close reads the remaining rows, as MySQL's driver does unless it closes the connection.
func (r *sentRows) Close() error {
	for r.left > 0 && r.ctx.Err() == nil {
		_ = r.Next(make([]driver.Value, 3))
	}
	return r.of.drained
}

// list reads a page of 1 MB from s, with a limit of maxPageRows, and returns what its store has learned about rows.
func (s *sender) list(t *testing.T) (*sizer, []sqlstore.ListRow, error) {
	db := NewDatabase(nil, slog.New(slog.DiscardHandler), commits{named{name: "fake"}},
		Pools{Read: s, Write: s, ReadConns: 1, WriteConns: 1, Remote: true})
	t.Cleanup(func() { require.NoError(t, db.read.Close()) })
	store := &Store{db: db, statements: &Statements{}, list: newSizer(1)}
	rows, _, err := store.listPage(t.Context(), sqlstore.ListQuery{MaxBytes: 1 << 20})
	return store.list, rows, err
}

// TestLargeRowsAfterAPageAreNotRead: its rows are small on average, and those after it are not.
func TestLargeRowsAfterAPageAreNotRead(t *testing.T) {
	s := &sender{small: 1500, large: 512 << 10}
	_, rows, err := s.list(t)
	require.NoError(t, err)
	require.Len(t, rows, s.small+2)
	require.LessOrEqual(t, s.sent, 2<<20)
}

// TestPageIsLearnedFromThoughItFailed: its deadline passed while unneeded rows were read. The next one asks for fewer.
func TestPageIsLearnedFromThoughItFailed(t *testing.T) {
	s := &sender{large: 1 << 10, drained: context.DeadlineExceeded}
	sizes, _, err := s.list(t)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, sizes.rows(1<<20), maxPageRows)
}
