package sqlstore_test

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
		open := func() error {
			s, err := sqlstore.Open(ctx, u, sqlstore.Options{})
			if err != nil {
				return err
			}
			return s.Close()
		}
		s, err := sqlstore.Open(ctx, u, sqlstore.Options{})
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
		if err := open(); !errors.Is(err, sqlstore.ErrUnavailable) || strings.Contains(err.Error(), "secret") {
			t.Errorf("with the old password: %v, want ErrUnavailable and no password", err)
		}
		password.Store("changed")
		before := asked.Load()
		if err := open(); err != nil {
			t.Errorf("with the new password: %v", err)
		}
		if asked.Load() == before {
			t.Error("the new connection did not ask for its password")
		}
		password.Store("")
		if err := open(); !errors.Is(err, failure) {
			t.Errorf("without a password: %v", err)
		}
		if _, err := s.Timestamp(ctx); err != nil {
			t.Errorf("on a connection that was open before: %v", err)
		}
	})
}
