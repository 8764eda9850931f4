package tidbsim

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/mysql"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// url is of no server: every connection is the cluster's.
const url = "tidb://sqlbrain@tidbsim:4000/" + databaseName

// Open opens a store on a new cluster, whose tables it creates.
func Open(seed uint64, o sqlstore.Options) (sqlstore.Store, error) {
	return New(Config{Seed: seed}).Open(context.Background(), o)
}

// OpenDB makes the product's pools of connections to the cluster. A WrapConnector in o wraps
// the cluster's connector.
func (c *Cluster) OpenDB(o sqlstore.Options) (*sqldb.Database, error) {
	u, err := sqlstore.ParseURL(url)
	if err != nil {
		return nil, err
	}
	outer := o.WrapConnector
	o.WrapConnector = func(driver.Connector) driver.Connector {
		if outer != nil {
			return outer(c.Connector())
		}
		return c.Connector()
	}
	return mysql.OpenDB(u, o)
}

// Migrate creates the tables that are missing, as sqlbrain migrate does.
func (c *Cluster) Migrate(ctx context.Context) (err error) {
	db, err := c.OpenDB(sqlstore.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return migrations.Up(ctx, db.DialectName(), db.SQL())
}

// Open creates the tables that are missing, and opens another store on the cluster.
func (c *Cluster) Open(ctx context.Context, o sqlstore.Options) (*sqldb.Store, error) {
	if err := c.Migrate(ctx); err != nil {
		return nil, err
	}
	db, err := c.OpenDB(o)
	if err != nil {
		return nil, err
	}
	return sqldb.Open(ctx, db, o)
}
