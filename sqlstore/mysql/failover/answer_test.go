package failover

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"testing"
)

// answering is a connection that answers every query with one row.
type answering []driver.Value

func (a answering) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return &oneRow{row: a}, nil
}

type oneRow struct {
	row  []driver.Value
	done bool
}

func (r *oneRow) Columns() []string { return make([]string, len(r.row)) }
func (r *oneRow) Close() error      { return nil }

func (r *oneRow) Next(dest []driver.Value) error {
	if r.done {
		return io.EOF
	}
	r.done = true
	copy(dest, r.row)
	return nil
}

// TestReadOnlyServersAreNotThePrimary: a server says in one of two variables that it takes no
// writes, as a number or a word.
func TestReadOnlyServersAreNotThePrimary(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		readOnly, innodb driver.Value
		primary          bool
	}{
		{int64(0), int64(0), true},
		{[]byte("OFF"), []byte("off"), true},
		{int64(1), int64(0), false},
		{[]byte("NO_LOCK"), int64(0), false}, // MariaDB 12
		{int64(0), int64(1), false},          // a reader of Aurora
		{[]byte("0"), []byte("ON"), false},
	} {
		server, err := askPrimary(context.Background(),
			answering{c.readOnly, c.innodb, int64(7), int64(3306), []byte("db1")}, primaryColumns)
		if c.primary && (err != nil || !strings.HasPrefix(server, "db1:3306")) || !c.primary &&
			!errors.Is(err, ErrNotPrimary) {
			t.Errorf("read_only %q, innodb_read_only %q: %q, %v", c.readOnly, c.innodb, server, err)
		}
	}
	if _, err := askPrimary(context.Background(), answering{int64(0), int64(7), int64(3306), []byte("db1")},
		primaryColumns); err == nil {
		t.Error("an answer of four columns is taken for one of five")
	}
}

// TestThePrimaryNeedsItsGroupsAgreement: a server that says that it takes writes is the primary only
// if its group agrees.
func TestThePrimaryNeedsItsGroupsAgreement(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]error{"none": nil, "primary": nil, "no primary": errNoMember,
		"minority": errMinority} {
		row := answering{int64(0), int64(0), int64(7), int64(3306), []byte("db1"), []byte(answer)}
		server, err := askPrimary(context.Background(), row, groupColumns)
		if !errors.Is(err, want) || (err == nil) != (server != "") {
			t.Errorf("%s: %q, %v, want %v", answer, server, err, want)
		}
		if err != nil && !errors.Is(err, ErrNotPrimary) {
			t.Errorf("%v is not the error of a server that is no primary", err)
		}
	}
}
