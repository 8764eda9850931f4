package mysql

import (
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

func TestUnixSocketOfTheServer(t *testing.T) {
	t.Parallel()
	for _, p := range enginetest.Products() {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			u, err := sqlstore.ParseURL(p.Database(t))
			if err != nil {
				t.Fatal(err)
			}
			db, err := OpenDB(u, sqlstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := db.SQL().QueryRowContext(t.Context(), "SELECT @@socket").Scan(&u.Socket); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if u.Socket == "" || u.Socket[0] != '/' {
				t.Skip("the server has no socket with an absolute path")
			}
			u.Address = "localhost:1" // is not used
			db, err = OpenDB(u, sqlstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			if err := db.SQL().PingContext(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}
