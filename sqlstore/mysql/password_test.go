package mysql

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// TestPasswordsOfConnections: a password that was changed is asked for, and what
// is connected already stays so.
func TestPasswordsOfConnections(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, p enginetest.Product) {
		server := p.StartServer(t)
		raw := ordinaryUser(t, server.URL())
		migrate(t, raw)
		withOld, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		withOld.User = url.UserPassword("app", "not this one")
		u := parse(t, withOld.String())
		var password atomic.Value
		password.Store("secret")
		var asked atomic.Int64
		failure := errors.New("no password today")
		u.SetPasswords(func(context.Context) (string, error) {
			asked.Add(1)
			p := password.Load().(string)
			if p == "" {
				return "", failure
			}
			return p, nil
		})
		ctx := context.Background()
		reopen := func() error {
			s, err := open(ctx, u, sqlstore.Options{})
			if err != nil {
				return err
			}
			return s.Close()
		}
		s, err := open(ctx, u, sqlstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		if _, err := s.Timestamp(ctx); err != nil {
			t.Fatal(err)
		}
		enginetest.Exec(t, server.URL(), "ALTER USER app@'%' IDENTIFIED BY 'changed'")
		if err := reopen(); !errors.Is(err, sqlstore.ErrUnavailable) || strings.Contains(err.Error(), "secret") {
			t.Errorf("with the old password: %v, want ErrUnavailable and no password", err)
		}
		password.Store("changed")
		before := asked.Load()
		if err := reopen(); err != nil {
			t.Errorf("with the new password: %v", err)
		}
		if asked.Load() == before {
			t.Error("the new connection did not ask for its password")
		}
		password.Store("")
		if err := reopen(); !errors.Is(err, failure) {
			t.Errorf("without a password: %v", err)
		}
		if _, err := s.Timestamp(ctx); err != nil {
			t.Errorf("on a connection that was open before: %v", err)
		}
	})
}

func TestConnectErrorsAreUnavailable(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	// Nobody listens there.
	_, err := open(ctx, parse(t, "mysql://user:s3cret@127.0.0.1:1/n"), sqlstore.Options{})
	if !errors.Is(err, sqlstore.ErrUnavailable) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("refused: %v", err)
	}
	u := parse(t, enginetest.Database(t))
	_, err = open(ctx, parse(t, "mysql://nobody:s3cret@"+u.Address+"/n"), sqlstore.Options{})
	if !errors.Is(err, sqlstore.ErrUnavailable) || strings.Contains(err.Error(), "s3cret") ||
		!strings.Contains(err.Error(), "nobody") {
		t.Errorf("access denied: %v", err)
	}
}

// TestOpenDoesNotShowThePassword: of a file that does not exist.
func TestOpenDoesNotShowThePassword(t *testing.T) {
	t.Parallel()
	u := parse(t, "mysql://user:s3cret%2Fwith%23every%25thing%40@127.0.0.1:1/n?tls-ca=/nonexistent")
	if _, err := open(context.Background(), u, sqlstore.Options{}); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%v", err)
	}
}
