package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

func TestSQLiteHasNoPeerPort(t *testing.T) {
	address := fmt.Sprintf("127.0.0.1:%d", enginetest.FreePort(t))
	n := startNode(t, "--datastore", sqliteURL(t), "--listen-client-urls=http://127.0.0.1:0",
		"--listen-peer-urls=https://"+address)
	_, err := net.Dial("tcp", address)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	r, err := n.client(t).MemberList(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"https://" + address}, r.Members[0].PeerURLs)
}

// TestUnusableSettingsReplaceNoMember: a process that cannot serve with its settings must find that out before it takes
// the place of one that does.
func TestUnusableSettingsReplaceNoMember(t *testing.T) {
	database := enginetest.Database(t)
	arguments := func(more ...string) []string {
		return append([]string{"--datastore", database, "--name=n1", "--listen-client-urls=http://127.0.0.1:0",
			"--listen-peer-urls="}, more...)
	}
	n := startNode(t, arguments()...)
	ctx := testContext(t)
	for _, tt := range []struct{ setting, want string }{
		{"--cors=example", `invalid origin "example"`},
		{"--cors=https://a.example, https://b.example", `invalid origin " https://b.example"`},
		{"--auth-token=jwt,pub-key=none,priv-key=none,sign-method=RS512", `tokens of the kind "jwt"`},
	} {
		execute(t, append([]string{"serve"}, arguments("--force-join", tt.setting)...)...).requireRefused(t, tt.want)
		_, err := n.client(t).Put(ctx, "k", "v")
		require.NoError(t, err, tt.setting)
	}
	require.NotContains(t, n.log.String(), "no longer a member")
}

func TestMembersWarnOfOneWithoutAPeerURL(t *testing.T) {
	database := enginetest.Database(t)
	arguments := func(name, peer string) []string {
		return []string{"--datastore", database, "--name", name, "--listen-client-urls=http://127.0.0.1:0",
			"--listen-peer-urls=" + peer}
	}
	const warning = "a member has no peer URL: while it leads, the others can neither forward writes to it nor answer " +
		"linearizable reads; " +
		"set --listen-peer-urls and --initial-advertise-peer-urls of that member"
	n1 := startNode(t, arguments("n1", "")...)
	require.NotContains(t, n1.log.String(), warning, "there is no other member")
	n2 := startNode(t, arguments("n2", fmt.Sprintf("https://127.0.0.1:%d", enginetest.FreePort(t)))...)
	require.Equal(t, "n1", n2.log.await(warning)["name"])
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := n2.client(t).Put(ctx, "k", "v")
	require.Error(t, err, "n1 leads")
	n3 := startNode(t, arguments("n3", "")...)
	require.Equal(t, 2, strings.Count(n3.log.String(), warning))
}
