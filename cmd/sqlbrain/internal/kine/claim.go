package kine

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// Tables as kine 0.16 makes them, but for the name of the column of keys. On MySQL kine adds no index to a table that
// exists. On SQLite it adds all but the one that an import needs.
const (
	createMySQL = `CREATE TABLE kine (
		id BIGINT UNSIGNED AUTO_INCREMENT,
		name_in_sqlbrain VARCHAR(630) CHARACTER SET ascii,
		created INTEGER,
		deleted INTEGER,
		create_revision BIGINT UNSIGNED,
		prev_revision BIGINT UNSIGNED,
		lease INTEGER,
		value MEDIUMBLOB,
		old_value MEDIUMBLOB,
		PRIMARY KEY (id),
		KEY kine_name_index (name_in_sqlbrain),
		KEY kine_name_id_index (name_in_sqlbrain, id),
		KEY kine_id_deleted_index (id, deleted),
		KEY kine_prev_revision_index (prev_revision),
		UNIQUE KEY kine_name_prev_revision_uindex (name_in_sqlbrain, prev_revision)
	)`
	createSQLite = `CREATE TABLE kine (
		id INTEGER PRIMARY KEY AUTOINCREMENT,
		name_in_sqlbrain TEXT,
		created INTEGER,
		deleted INTEGER,
		create_revision INTEGER,
		prev_revision INTEGER,
		lease INTEGER,
		value BLOB,
		old_value BLOB
	);
	CREATE INDEX kine_name_id_index ON kine (name_in_sqlbrain, id)`
)

const (
	insertProbe = "INSERT INTO kine (id, name, created, deleted, create_revision, prev_revision, lease) VALUES (?, ?, " +
		"0, 1, 0, 0, 0)"
	countAnswer = "SELECT COUNT(*) FROM kine WHERE id > ? AND id <> ?"
	deleteProbe = "DELETE FROM kine WHERE id = ?"

	// probeTime is how long a kine has to answer the probe. It looks for new rows every second.
	probeTime = 5 * time.Second
	// probePause is the time between two queries for the answer.
	probePause = 50 * time.Millisecond
)

// take makes a table that kine may use, or that does not exist, one that no kine can use. It returns Importing if
// the store is to be filled with its keys, and Adopted otherwise. unfinished is what state says.
// Errors: ErrBoth, ErrInUse, the database's.
func (a *Adoption) take(ctx context.Context, table Table, unfinished bool) (Table, error) {
	if table == Absent {
		failed := a.create(ctx)
		if failed == nil {
			return Adopted, nil
		}
		// A kine that starts may have been faster.
		if now, err := Inspect(ctx, a.Dialect, a.DB); err != nil || now != Used {
			return Absent, fmt.Errorf("creating kine's table: %w", failed)
		}
	}
	empty, err := repair.IsEmpty(ctx, a.Store)
	if err != nil {
		return Used, err
	}
	data, err := hasData(ctx, a.DB, Used)
	if err != nil {
		return Used, err
	}
	fill := empty || unfinished
	if data && !fill {
		return Used, ErrBoth
	}
	if err := a.probe(ctx); err != nil {
		return Used, err
	}
	if _, err := a.DB.ExecContext(ctx, claimTable); err != nil {
		return Used, fmt.Errorf("taking kine's table: %w", err)
	}
	if fill {
		return Importing, nil
	}
	// The table has all rows now that a kine wrote until then.
	if data, err = hasData(ctx, a.DB, Importing); err != nil {
		return Importing, err
	}
	if data {
		if _, err := a.DB.ExecContext(ctx, returnTable); err != nil {
			return Importing, err
		}
		return Used, ErrInUse
	}
	if _, err := a.DB.ExecContext(ctx, adoptTable); err != nil {
		return Importing, fmt.Errorf("taking kine's table: %w", err)
	}
	return Adopted, nil
}

// create makes a table without rows. It fails if there is a table.
func (a *Adoption) create(ctx context.Context) error {
	if a.Dialect != sqlstore.DialectSQLite {
		_, err := a.DB.ExecContext(ctx, createMySQL)
		return err
	}
	return a.inTransaction(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, createSQLite)
		return err
	})
}

// probe returns ErrInUse if a kine runs, also if it has no clients: a kine adds a row for each revision that is missing
// before the newest one. A kine that does not answer in time is not noticed, and cannot write once the table is taken.
func (a *Adoption) probe(ctx context.Context) error {
	before, err := revision(ctx, a.DB)
	if err != nil {
		return err
	}
	a.Logger.Info("found a table of kine, looking whether a kine runs", "revision", before, "for", probeTime)
	probe := before + 2
	// The name is that of the rows that kine adds, which it shows no client.
	_, failed := a.DB.ExecContext(ctx, insertProbe, probe, fmt.Sprintf("gap-%d", probe))
	for deadline := time.Now().Add(probeTime); ; {
		var rows int
		if err := a.DB.QueryRowContext(ctx, countAnswer, before, probe).Scan(&rows); err != nil {
			return err
		}
		if rows > 0 {
			// The probe stays: the kine may have given its revision to clients.
			return fmt.Errorf("%w (its revision was %d)", ErrInUse, before)
		}
		if failed != nil {
			return fmt.Errorf("looking whether a kine runs: %w", failed)
		}
		if time.Now().After(deadline) {
			_, err := a.DB.ExecContext(ctx, deleteProbe, probe)
			return err
		}
		if err := retry.Sleep(ctx, probePause); err != nil {
			return err
		}
	}
}
