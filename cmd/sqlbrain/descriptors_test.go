package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
)

func TestClientsLeaveFileDescriptors(t *testing.T) {
	for _, c := range []struct {
		files    uint64
		database int
		want     int
	}{
		{65536, 0, 63466},
		{65536, 1000, 62466},
		{1024, 0, 874},
		{1024, 65536, 512},
		{256, 0, 202},
		{64, 0, 32},
		{100, 36, 50},
		{math.MaxUint64, 0, math.MaxInt32},
	} {
		require.Equal(t, c.want, clientConnections(c.files, c.database), c)
	}
	require.Equal(t, 64, otherConnections(1024))
	require.Equal(t, 16, otherConnections(100))
	require.Equal(t, 1024, otherConnections(math.MaxUint64))
	require.Positive(t, clientConnections(mostFiles(), 0))
	p := &program{settings: config.New()}
	require.Equal(t, 36, p.databaseConns())
	p.settings.Store.MaxOpenConns = 100
	require.Equal(t, 104, p.databaseConns())
}
