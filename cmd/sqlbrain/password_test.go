package main

import (
	"fmt"
	"net/url"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// TestChangedPasswordIsReadAgain: the server lives on with new connections
// after the file, and the user's password, were changed.
func TestChangedPasswordIsReadAgain(t *testing.T) {
	for flag, value := range map[string]string{"--datastore-password-file": "%s",
		"--datastore-password-command": "cat '%s'"} {
		t.Run(flag, func(t *testing.T) { testPasswordThatChanges(t, flag, value) })
	}
}

func testPasswordThatChanges(t *testing.T, flag, value string) {
	server := enginetest.StartServer(t)
	withPassword := newUser(t, server.URL(), "ALL PRIVILEGES")
	without := changed(t, withPassword, func(u *url.URL) { u.User = url.User(u.User.Username()) })
	user, err := url.Parse(without)
	require.NoError(t, err)
	file := writeTemp(t, "password", secret)
	n := startNode(t, "serve", "--datastore", without, flag, fmt.Sprintf(value, file))
	c := n.client(t)
	_, err = c.Put(t.Context(), "k", "before")
	require.NoError(t, err)

	const next = secret + "-next"
	enginetest.Exec(t, server.URL(), "ALTER USER '"+user.User.Username()+"'@'%' IDENTIFIED BY '"+next+"'")
	require.NoError(t, os.WriteFile(file, []byte(next+"\n"), 0o600))
	// No connection survives this.
	server.Kill()
	server.Start()
	eventually.True(t, "a write with the new password", func() bool {
		_, err := c.Put(t.Context(), "k", "after")
		return err == nil
	})
	require.Zero(t, n.stop())
}
