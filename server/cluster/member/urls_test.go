package member

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func TestJoinRefusesAPeerURLOfARunningMember(t *testing.T) {
	onEngines(t, func(t *testing.T, store sqlstore.Store) {
		first := run(t, start(t, store, "n1", "http://127.0.0.1:2380"))
		defer first.kill()
		for _, url := range []string{"http://127.0.0.1:2380", "https://127.0.0.1:2380"} {
			cfg := config(t, store, "n2", url)
			cfg.poll = time.Second // so the answer may take 3 s
			_, err := Join(t.Context(), cfg)
			require.ErrorIs(t, err, ErrPeerURLExists)
			require.ErrorContains(t, err, `member "n1"`)
			require.ErrorContains(t, err, "--initial-advertise-peer-urls")
		}
		require.Len(t, list(t, first.Registry), 1)
		start(t, store, "n2", "http://127.0.0.1:2390")

		first.kill()
		start(t, store, "n3", "https://127.0.0.1:2380") // n1 is silent
		require.NoError(t, first.Leave(t.Context()))
		start(t, store, "n4", "http://127.0.0.1:2390", "http://10.0.0.1:2380")
	})
}

func TestJoinRefusesUnreachableAddresses(t *testing.T) {
	store := newStore(t)
	for _, url := range []string{"http://0.0.0.0:2380", "https://[::]:2380", "http://127.0.0.1:0"} {
		_, err := Join(t.Context(), config(t, store, "n", "http://10.0.0.1:2380", url))
		require.ErrorIs(t, err, ErrBadURLs)
		require.ErrorContains(t, err, url)
		require.ErrorContains(t, err, "--initial-advertise-peer-urls")
	}
}

func TestJoinWarnsOfLoopbackAmongOtherHosts(t *testing.T) {
	store := newStore(t)
	warnings := func(name, url string) string {
		var out strings.Builder
		cfg := config(t, store, name, url)
		cfg.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
		_, err := Join(t.Context(), cfg)
		require.NoError(t, err)
		return out.String()
	}
	require.Empty(t, warnings("n1", "http://10.0.0.1:2380"))
	require.Empty(t, warnings("n2", "http://10.0.0.2:2380"))
	require.Contains(t, warnings("n3", "http://127.0.0.1:2380"), "--initial-advertise-peer-urls")
	require.Contains(t, warnings("n4", "http://10.0.0.4:2380"), "http://127.0.0.1:2380", "the other way round too")
}

// A member that was added with http may be started with https.
func TestTheSchemeOfAnAddedMemberMakesNoDifference(t *testing.T) {
	store := newStore(t)
	n1 := start(t, store, "n1", "http://10.0.0.1:2380")
	added, _, err := n1.Add(t.Context(), []string{"http://10.0.0.2:2380"}, false)
	require.NoError(t, err)
	_, _, err = n1.Add(t.Context(), []string{"https://10.0.0.2:2380"}, false)
	require.ErrorIs(t, err, ErrPeerURLExists)
	require.Equal(t, added.ID, start(t, store, "n2", "https://10.0.0.2:2380").Self().ID)
}
