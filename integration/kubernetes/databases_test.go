package kubernetes

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// databases hands out empty databases of a private server over HTTP, so that
// the copied module needs no driver: POST answers the URL of a new one, DELETE
// drops the one whose URL is the body.
type databases struct {
	db   *sql.DB
	base *url.URL
	last atomic.Int64
}

// serveDatabases hands out databases of a product's server until the test ends, at the URL that it returns.
func serveDatabases(t *testing.T, p enginetest.Product) string {
	t.Helper()
	base, err := url.Parse(p.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr = "tcp", base.Host
	cfg.User = base.User.Username()
	cfg.Passwd, _ = base.User.Password()
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d := &databases{db: sql.OpenDB(connector), base: base}
	server := httptest.NewUnstartedServer(d)
	server.Config.ErrorLog = log.New(t.Output(), "databases: ", 0)
	server.Start()
	t.Cleanup(func() {
		server.Close()
		if err := d.db.Close(); err != nil {
			t.Error(err)
		}
	})
	return server.URL
}

func (d *databases) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer string
	var err error
	switch r.Method {
	case http.MethodPost:
		answer, err = d.create(r)
	case http.MethodDelete:
		err = d.drop(r)
	default:
		err = errors.New("unknown method")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	// A caller that is gone does not need the answer.
	_, _ = io.WriteString(w, answer)
}

// create names databases after the one the server was made with, which is
// unique on servers that others use too.
func (d *databases) create(r *http.Request) (string, error) {
	u := *d.base
	u.Path = fmt.Sprintf("%s_%d", d.base.Path, d.last.Add(1))
	_, err := d.db.ExecContext(r.Context(), "CREATE DATABASE "+strings.TrimPrefix(u.Path, "/"))
	return u.String(), err
}

func (d *databases) drop(r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	u, err := url.Parse(string(body))
	if err != nil {
		return err
	}
	if !strings.HasPrefix(u.Path, d.base.Path+"_") {
		return fmt.Errorf("%s is not one of ours", u.Redacted())
	}
	_, err = d.db.ExecContext(r.Context(), "DROP DATABASE "+strings.TrimPrefix(u.Path, "/"))
	return err
}
