package failover

import (
	"context"
	"database/sql/driver"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// answering is a connection that answers every query with one row.
type answering []driver.Value

func (a answering) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return &someRows{a}, nil
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
		if c.primary {
			require.NoError(t, err, "%+v", c)
			require.True(t, strings.HasPrefix(server, "db1:3306"), server)
		} else {
			require.ErrorIs(t, err, ErrNotPrimary, "%+v", c)
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
		require.ErrorIs(t, err, want, answer)
		require.Equal(t, err == nil, server != "", answer)
		if err != nil {
			require.ErrorIs(t, err, ErrNotPrimary, answer)
		}
	}
}
