package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClientsLeaveFileDescriptors(t *testing.T) {
	for _, c := range []struct {
		files    uint64
		database int
		want     int
	}{
		{65536, 0, 65386},
		{65536, 1000, 64386},
		{1024, 0, 874},
		{1024, 65536, 512},
		{256, 0, 128},
		{100, 36, 50},
		{math.MaxUint64, 0, math.MaxInt32},
	} {
		require.Equal(t, c.want, clientConnections(c.files, c.database), c)
	}
	require.Positive(t, clientConnections(mostFiles(), 0))
}
