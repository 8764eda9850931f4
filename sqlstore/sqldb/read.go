package sqldb

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

const (
	// MaxKey and MaxValue bound a row on every engine, in bytes.
	MaxKey   = coder.MaxInternalKey
	MaxValue = 1<<24 - 1 // MEDIUMBLOB
	// InKeys bounds an IN list. Between 4,000 and 8,000 keys, MySQL scans the whole table
	// instead of using the index.
	InKeys = 500
	// readAttempts bounds how often a read is tried when its connection breaks, and
	// pausedAttempts how often when the engine says that it may succeed after a pause.
	readAttempts   = 2
	pausedAttempts = 6
)

// readPause is the pause between attempts of a read: about a second in all. A TiDB server has
// tried for longer before it reports the error.
var readPause = retry.Backoff{Min: 50 * time.Millisecond, Max: 400 * time.Millisecond}

type pointRead struct{}

// pointKeys bounds the rows of a point read.
const pointKeys = 16

// PointRead returns the context of a query for a few rows of a key and a value, and for nothing else. A
// connection may add a row to the query that it takes out of the result.
func PointRead(ctx context.Context) context.Context {
	return context.WithValue(ctx, pointRead{}, true)
}

// IsPointRead reports whether ctx is one of PointRead.
func IsPointRead(ctx context.Context) bool { return ctx.Value(pointRead{}) != nil }

// Querier is a pool, or a connection with a snapshot.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// EachRow runs a statement and calls scan for each row until it returns false.
func EachRow(ctx context.Context, q Querier, text string, args []any, scan func(*sql.Rows) (bool, error)) (err error) {
	rows, err := q.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if more, err := scan(rows); err != nil || !more {
			return err
		}
	}
	return rows.Err()
}

// read runs f on the read pool, or, if it is urgent, on that for commits, and again if that may succeed: a read may be
// repeated. f must start from the beginning each time.
func (s *Store) read(ctx context.Context, f func(Querier) error) error {
	pool := s.db.read
	if s.db.pools.Remote && sqlstore.IsUrgent(ctx) {
		pool = s.db.write
	}
	defer s.db.dropLate(ctx, pool, time.Now())
	for failures := 1; ; failures++ {
		err := f(pool)
		if err == nil || !s.readAgain(ctx, err, failures) {
			return RolledBack(ctx, s.db.engine, err)
		}
	}
}

// readAgain reports whether to repeat a read that has failed so many times, the last time with
// err. It pauses first if the engine needs time.
func (s *Store) readAgain(ctx context.Context, err error, failures int) bool {
	if ctx.Err() != nil {
		return false
	}
	switch Classify(s.db.engine, err) {
	case FailureLost, FailureNotSent, FailureRetry:
		return failures < readAttempts
	}
	return failures < pausedAttempts && s.db.engine.Retryable(err) && readPause.Wait(ctx, failures) == nil
}

// readRow reads the first row of a statement into dest, and reports whether there is one. If
// there is none, dest may still hold a row of an attempt that failed. It is one call of the
// store, named name.
func (s *Store) readRow(ctx context.Context, name, text string, args []any, dest ...any) (found bool, err error) {
	err = s.call(ctx, name, func(ctx context.Context) error {
		return s.read(ctx, func(q Querier) error {
			found = false
			return EachRow(ctx, q, text, args, func(r *sql.Rows) (bool, error) {
				found = true
				return false, r.Scan(dest...)
			})
		})
	})
	return found && err == nil, err
}

// readSnapshot is read with one snapshot for all statements of f.
func (s *Store) readSnapshot(ctx context.Context, f func(Querier) error) error {
	return s.read(ctx, func(Querier) (err error) {
		conn, err := s.db.read.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() {
			Rollback(ctx, conn)
			_ = conn.Close() // returns it to the pool
		}()
		for _, text := range s.statements.Snapshot {
			if _, err := conn.ExecContext(ctx, text); err != nil {
				return err
			}
		}
		return f(conn)
	})
}

// Get implements sqlstore.KvStorage.
func (s *Store) Get(ctx context.Context, key []byte) (value []byte, err error) {
	found, err := s.readRow(ctx, "get", "SELECT object_value FROM object WHERE internal_key = ?",
		[]any{NotNil(key)}, &value)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, fmt.Errorf("%w: %x", sqlstore.ErrKeyNotFound, key)
	}
	return NotNil(value), nil
}

const multiGetText = "SELECT internal_key, object_value FROM object WHERE internal_key IN "

// MultiGet implements sqlstore.KvStorage.
func (s *Store) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	if len(keys) <= pointKeys {
		ctx = PointRead(ctx)
	}
	values := make([][]byte, len(keys))
	err := s.readKeys(ctx, "multiget", multiGetText, keys,
		func() { clear(values) },
		func(r *sql.Rows, places func(key []byte) []int) (bool, error) {
			var key sql.RawBytes
			var value []byte
			if err := r.Scan(&key, &value); err != nil {
				return false, err
			}
			for n, i := range places(key) {
				values[i] = owned(value, n)
			}
			return true, nil
		})
	if err != nil {
		return nil, err
	}
	return values, nil
}

// Lookup implements sqlstore.Store.
func (s *Store) Lookup(ctx context.Context, keys [][]byte,
	maxBytes int) (rows []sqlstore.ListRow, more bool, err error) {
	if s.statements.Lookup == "" {
		return s.lookupTwice(ctx, keys, maxBytes)
	}
	rows = make([]sqlstore.ListRow, len(keys))
	size := 0
	err = s.readKeys(ctx, "lookup", s.statements.Lookup, keys,
		func() {
			clear(rows)
			size, more = 0, false
		},
		func(r *sql.Rows, places func(key []byte) []int) (bool, error) {
			if more = maxBytes > 0 && size >= maxBytes; more {
				return false, nil
			}
			var row sqlstore.ListRow
			if err := r.Scan(&row.Key, &row.Index, &row.Version); err != nil {
				return false, err
			}
			size += len(row.Key) + len(row.Index) + len(row.Version)
			for n, i := range places(row.Key) {
				rows[i] = sqlstore.ListRow{Key: owned(row.Key, n), Index: owned(row.Index, n)}
				if row.Version != nil {
					rows[i].Version = owned(row.Version, n)
				}
			}
			return true, nil
		})
	if err != nil {
		return nil, false, err
	}
	return rows, more, nil
}

// lookupTwice is Lookup without a join: index rows, then the version rows that they name. Compaction may have removed
// one of these in between, but only if the index row has changed before: then both are read anew.
func (s *Store) lookupTwice(ctx context.Context, keys [][]byte,
	maxBytes int) (rows []sqlstore.ListRow, more bool, err error) {
	rows = make([]sqlstore.ListRow, len(keys))
	index, err := s.MultiGet(ctx, keys)
	for err == nil {
		var left []int // without their version rows
		if left, more, err = s.joinVersions(ctx, keys, index, rows, maxBytes); err != nil || more || len(left) == 0 {
			break
		}
		names := make([][]byte, len(left))
		for n, i := range left {
			names[n] = keys[i]
		}
		var newer [][]byte
		newer, err = s.MultiGet(ctx, names)
		for n, i := range left {
			switch {
			case err != nil:
			case newer[n] != nil && bytes.Equal(newer[n], index[i]): // there is no version row
				rows[i] = sqlstore.ListRow{Key: bytes.Clone(keys[i]), Index: index[i]}
			default:
				index[i] = newer[n]
			}
		}
	}
	if err != nil {
		return nil, false, err
	}
	return rows, more, nil
}

// joinVersions sets those of rows that have an index row and are not set, where it finds the version row. left are the
// others, unless there are more: then some were not read.
func (s *Store) joinVersions(ctx context.Context, keys, index [][]byte, rows []sqlstore.ListRow,
	maxBytes int) (left []int, more bool, err error) {
	var at []int // positions of those to read
	var names [][]byte
	for i, value := range index {
		if value == nil || rows[i].Key != nil {
			continue
		}
		name, err := coder.NamedVersionKey(keys[i], value)
		if err != nil {
			return nil, false, err
		}
		at, names = append(at, i), append(names, name)
	}
	size := 0
	err = s.readKeys(ctx, "lookup", multiGetText, names,
		func() {
			for _, i := range at {
				rows[i] = sqlstore.ListRow{}
			}
			size, more = 0, false
		},
		func(r *sql.Rows, places func(key []byte) []int) (bool, error) {
			if more = maxBytes > 0 && size >= maxBytes; more {
				return false, nil
			}
			var name sql.RawBytes
			var version []byte
			if err := r.Scan(&name, &version); err != nil {
				return false, err
			}
			for n, place := range places(name) {
				i := at[place]
				rows[i] = sqlstore.ListRow{Key: bytes.Clone(keys[i]), Index: index[i], Version: owned(version, n)}
				size += len(keys[i]) + len(index[i]) + len(version)
			}
			return true, nil
		})
	for _, i := range at {
		if rows[i].Key != nil || err != nil {
			continue
		}
		var x coder.Index
		if x, err = coder.DecodeIndex(index[i]); x.Tombstone {
			rows[i] = sqlstore.ListRow{Key: bytes.Clone(keys[i]), Index: index[i]} // usually it has no version row
			continue
		}
		left = append(left, i)
	}
	return left, more, err
}

// owned returns b for the first place that gets it, and copies for others: no two share a slice.
func owned(b []byte, place int) []byte {
	if place > 0 {
		b = bytes.Clone(b)
	}
	return NotNil(b)
}

// readKeys runs text, to which it adds a list of keys, and calls scan with each row until it returns false. places
// returns the positions of a row's key in keys. It is one call of the store, named name. Each attempt begins with reset,
// and reads one snapshot.
func (s *Store) readKeys(ctx context.Context, name, text string, keys [][]byte, reset func(),
	scan func(r *sql.Rows, places func(key []byte) []int) (bool, error)) error {
	at := make(map[string][]int, len(keys))
	distinct := make([][]byte, 0, len(keys))
	for i, key := range keys {
		k := string(key)
		if at[k] == nil {
			distinct = append(distinct, key)
		}
		at[k] = append(at[k], i)
	}
	slices.SortFunc(distinct, bytes.Compare) // the engine walks its tree in one direction
	places := func(key []byte) []int { return at[string(key)] }
	return s.call(ctx, name, func(ctx context.Context) error {
		if len(keys) == 0 {
			return nil
		}
		run := s.read
		if len(distinct) > InKeys {
			run = s.readSnapshot
		}
		return run(ctx, func(q Querier) error {
			reset()
			more := true
			for chunk := range slices.Chunk(distinct, InKeys) {
				text, args := InList(text, chunk)
				err := EachRow(ctx, q, text, args, func(r *sql.Rows) (_ bool, err error) {
					more, err = scan(r, places)
					return more, err
				})
				if err != nil || !more {
					return err
				}
			}
			return nil
		})
	})
}

// InList appends a list of keys to text. It pads the list to a power of two with the last
// key, so that few different statements are prepared.
func InList(text string, keys [][]byte) (string, []any) {
	n := padded(len(keys))
	args := make([]any, n)
	for i := range args {
		args[i] = NotNil(keys[min(i, len(keys)-1)])
	}
	return text + "(?" + strings.Repeat(",?", n-1) + ")", args
}

// padded rounds n up to a power of two, but not above InKeys.
func padded(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	if n <= InKeys {
		p = min(p, InKeys)
	}
	return p
}

// Timestamp implements sqlstore.KvStorage.
func (s *Store) Timestamp(ctx context.Context) (time.Time, error) {
	var micros int64
	if _, err := s.readRow(ctx, "timestamp", s.statements.Timestamp, nil, &micros); err != nil {
		return time.Time{}, err
	}
	return time.UnixMicro(micros), nil
}

// GetPartitions implements sqlstore.KvStorage. Not every edition of an engine lets
// ordinary users ask for its partitions. They only serve speed, so that an error
// means one partition.
func (s *Store) GetPartitions(ctx context.Context, start, end []byte) (p []sqlstore.Partition, err error) {
	err = s.call(ctx, "partitions", func(ctx context.Context) error {
		bounds, err := s.db.engine.Bounds(ctx, s.info, s.db.read)
		if err != nil {
			if ctx.Err() != nil {
				return RolledBack(ctx, s.db.engine, err)
			}
			s.db.logger.DebugContext(ctx, "the table's regions are not to be had", "error", err)
			bounds = nil
		}
		p = split(start, end, bounds)
		return nil
	})
	return p, err
}

// split cuts [start, end) at those bounds that lie in it.
func split(start, end []byte, bounds [][]byte) []sqlstore.Partition {
	parts := []sqlstore.Partition{{Start: bytes.Clone(start), End: bytes.Clone(end)}}
	for _, b := range bounds {
		last := &parts[len(parts)-1]
		if bytes.Compare(b, last.Start) > 0 && bytes.Compare(b, end) < 0 {
			last.End = b
			parts = append(parts, sqlstore.Partition{Start: bytes.Clone(b), End: bytes.Clone(end)})
		}
	}
	return parts
}

// Lengths implements sqlstore.Store.
func (s *Store) Lengths(ctx context.Context, keys [][]byte) ([]int, error) {
	lengths := make([]int, len(keys))
	err := s.readKeys(ctx, "lengths", "SELECT internal_key, LENGTH(object_value) FROM object WHERE internal_key IN ", keys,
		func() {
			for i := range lengths {
				lengths[i] = -1
			}
		},
		func(r *sql.Rows, places func(key []byte) []int) (bool, error) {
			var key sql.RawBytes
			var length int
			if err := r.Scan(&key, &length); err != nil {
				return false, err
			}
			for _, i := range places(key) {
				lengths[i] = length
			}
			return true, nil
		})
	if err != nil {
		return nil, err
	}
	return lengths, nil
}

// MeasureText takes two keys, two bounds and a limit.
const MeasureText = "SELECT COALESCE(SUM(bytes), 0), COUNT(*), MAX(internal_key)," +
	" (SELECT object_value FROM object WHERE internal_key = ?), (SELECT object_value FROM object WHERE internal_key = ?)" +
	" FROM (SELECT internal_key, LENGTH(internal_key) + LENGTH(object_value) AS bytes FROM object" +
	" WHERE internal_key >= ? AND internal_key < ? ORDER BY internal_key LIMIT ?) AS page"

// Measure implements sqlstore.Store.
func (s *Store) Measure(ctx context.Context, q sqlstore.MeasureQuery) (m sqlstore.Measured, err error) {
	limit := q.Limit
	if limit <= 0 {
		limit = math.MaxInt64
	}
	args := []any{NotNil(q.Also[0]), NotNil(q.Also[1]), NotNil(q.Start), NotNil(q.End), limit}
	_, err = s.readRow(ctx, "measure", MeasureText, args, &m.Bytes, &m.Rows, &m.Last, &m.Also[0], &m.Also[1])
	return m, err
}

// Size implements sqlstore.Store.
func (s *Store) Size(ctx context.Context) (total, inUse int64, err error) {
	err = s.call(ctx, "size", func(ctx context.Context) error {
		return s.read(ctx, func(Querier) error {
			total, inUse, err = s.db.engine.Size(ctx, s.db)
			return err
		})
	})
	return total, inUse, err
}

// FreeSpace implements sqlstore.Store.
func (s *Store) FreeSpace(ctx context.Context) (free, reserve int64, err error) {
	err = s.call(ctx, "", func(context.Context) error {
		free, reserve, err = s.db.engine.FreeSpace()
		return err
	})
	return free, reserve, err
}

// Defragment implements sqlstore.Store.
func (s *Store) Defragment(ctx context.Context) error {
	return s.call(ctx, "defragment", func(ctx context.Context) error {
		return RolledBack(ctx, s.db.engine, s.db.engine.Defragment(ctx, s.db))
	})
}

// NotNil returns b, or an empty slice for nil, which drivers use for NULL.
func NotNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
