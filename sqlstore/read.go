package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
)

const (
	maxKey   = coder.MaxInternalKey
	maxValue = 1<<24 - 1 // MEDIUMBLOB
	// inKeys bounds an IN list. MySQL gives the index up for a full table scan
	// somewhere between 4,000 and 8,000 keys.
	inKeys = 500
	// readAttempts bounds how often a read is tried when its connection breaks.
	readAttempts = 2
)

// querier is a pool, or a connection with a snapshot.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// query runs a statement and calls scan for each row until it returns false.
func query(ctx context.Context, q querier, text string, args []any, scan func(*sql.Rows) (bool, error)) (err error) {
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

// read runs f on the read pool, and once more if the connection broke: reading
// twice does no harm. f must start afresh each time.
func (s *DBStore) read(ctx context.Context, f func(querier) error) error {
	var err error
	for range readAttempts {
		if err = f(s.db.read); err == nil {
			return nil
		}
		c := s.db.dialect.classify(err)
		if ctx.Err() != nil || c != failureLost && c != failureNotSent && c != failureRetry {
			break
		}
	}
	return definite(ctx, s.db.dialect, err)
}

// readSnapshot is read, but everything f does sees one state of the table.
func (s *DBStore) readSnapshot(ctx context.Context, f func(querier) error) error {
	return s.read(ctx, func(querier) (err error) {
		conn, err := s.db.read.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() {
			rollback(ctx, conn)
			_ = conn.Close() // returns it to the pool
		}()
		for _, text := range s.texts.snapshot {
			if _, err := conn.ExecContext(ctx, text); err != nil {
				return err
			}
		}
		return f(conn)
	})
}

// Get implements KvStorage.
func (s *DBStore) Get(ctx context.Context, key []byte) (value []byte, err error) {
	err = s.call(ctx, "get", func(ctx context.Context) error {
		found := false
		err := s.read(ctx, func(q querier) error {
			value, found = nil, false
			return query(ctx, q, "SELECT object_value FROM object WHERE internal_key = ?", []any{notNil(key)}, func(r *sql.Rows) (bool, error) {
				found = true
				return false, r.Scan(&value)
			})
		})
		if err == nil && !found {
			err = fmt.Errorf("%w: %x", ErrKeyNotFound, key)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return notNil(value), nil
}

// MultiGet implements KvStorage.
func (s *DBStore) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	values := make([][]byte, len(keys))
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
	err := s.call(ctx, "multiget", func(ctx context.Context) error {
		if len(keys) == 0 {
			return nil
		}
		run := s.read
		if len(distinct) > inKeys {
			run = s.readSnapshot
		}
		return run(ctx, func(q querier) error {
			clear(values)
			for chunk := range slices.Chunk(distinct, inKeys) {
				text, args := inList("SELECT internal_key, object_value FROM object WHERE internal_key IN ", chunk)
				err := query(ctx, q, text, args, func(r *sql.Rows) (bool, error) {
					var key sql.RawBytes
					var value []byte
					if err := r.Scan(&key, &value); err != nil {
						return false, err
					}
					for n, i := range at[string(key)] {
						values[i] = notNil(value)
						if n > 0 {
							values[i] = notNil(bytes.Clone(value)) // no two share a slice
						}
					}
					return true, nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return values, nil
}

// inList appends the list of keys to text. The list is padded to a power of two
// with its last key, so that few different statements are to be prepared.
func inList(text string, keys [][]byte) (string, []any) {
	n := padded(len(keys))
	args := make([]any, n)
	for i := range args {
		args[i] = notNil(keys[min(i, len(keys)-1)])
	}
	return text + "(?" + strings.Repeat(",?", n-1) + ")", args
}

// padded rounds n up to a power of two, but not above inKeys.
func padded(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	if n <= inKeys {
		p = min(p, inKeys)
	}
	return p
}

// Timestamp implements KvStorage.
func (s *DBStore) Timestamp(ctx context.Context) (at time.Time, err error) {
	err = s.call(ctx, "timestamp", func(ctx context.Context) error {
		return s.read(ctx, func(q querier) error {
			return query(ctx, q, s.texts.timestamp, nil, func(r *sql.Rows) (bool, error) {
				var micros int64
				err := r.Scan(&micros)
				at = time.UnixMicro(micros)
				return false, err
			})
		})
	})
	return at, err
}

// GetPartitions implements KvStorage. TiDB alone tells where its rows are, if it
// does: not every edition lets ordinary users ask, and partitions are for speed
// only, so that an error means one.
func (s *DBStore) GetPartitions(ctx context.Context, start, end []byte) (p []Partition, err error) {
	err = s.call(ctx, "partitions", func(ctx context.Context) error {
		var bounds [][]byte
		if s.info.Product == productTiDB {
			if bounds, err = regionBounds(ctx, s.db.read); err != nil {
				if ctx.Err() != nil {
					return definite(ctx, s.db.dialect, err)
				}
				s.db.logger.DebugContext(ctx, "the table's regions are not to be had", "error", err)
				bounds = nil
			}
		}
		p = split(start, end, bounds)
		return nil
	})
	return p, err
}

// Size implements Store.
func (s *DBStore) Size(ctx context.Context) (total, inUse int64, err error) {
	err = s.call(ctx, "size", func(ctx context.Context) error {
		return s.read(ctx, func(querier) error {
			total, inUse, err = s.db.dialect.size(ctx, s.db)
			return err
		})
	})
	return total, inUse, err
}

// Defragment implements Store.
func (s *DBStore) Defragment(ctx context.Context) error {
	return s.call(ctx, "defragment", func(ctx context.Context) error {
		return definite(ctx, s.db.dialect, s.db.dialect.defragment(ctx, s.db))
	})
}

// notNil returns b, or an empty slice: drivers take and give nil for NULL.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
