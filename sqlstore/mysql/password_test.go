package mysql

import (
	"context"
	"errors"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

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
		require.NoError(t, err)
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
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		_, err = s.Timestamp(ctx)
		require.NoError(t, err)
		enginetest.Exec(t, server.URL(), "ALTER USER app@'%' IDENTIFIED BY 'changed'")
		err = reopen()
		require.ErrorIs(t, err, sqlstore.ErrUnavailable, "with the old password")
		require.NotContains(t, err.Error(), "secret")
		password.Store("changed")
		before := asked.Load()
		require.NoError(t, reopen(), "with the new password")
		require.Greater(t, asked.Load(), before, "the new connection asks for its password")
		password.Store("")
		require.ErrorIs(t, reopen(), failure, "without a password")
		_, err = s.Timestamp(ctx)
		require.NoError(t, err, "on a connection that was open before")
	})
}

func TestConnectErrorsAreUnavailable(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	// Nobody listens there.
	_, err := open(ctx, parse(t, "mysql://user:s3cret@127.0.0.1:1/n"), sqlstore.Options{})
	require.ErrorIs(t, err, sqlstore.ErrUnavailable)
	require.NotContains(t, err.Error(), "s3cret")
	u := parse(t, enginetest.Database(t))
	_, err = open(ctx, parse(t, "mysql://nobody:s3cret@"+u.Address+"/n"), sqlstore.Options{})
	require.ErrorIs(t, err, sqlstore.ErrUnavailable, "access denied")
	require.ErrorContains(t, err, "nobody")
	require.NotContains(t, err.Error(), "s3cret")
}

// TestOpenDoesNotShowThePassword: of a file that does not exist.
func TestOpenDoesNotShowThePassword(t *testing.T) {
	t.Parallel()
	u := parse(t, "mysql://user:s3cret%2Fwith%23every%25thing%40@127.0.0.1:1/n?tls-ca=/nonexistent")
	_, err := open(t.Context(), u, sqlstore.Options{})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "s3cret")
}
