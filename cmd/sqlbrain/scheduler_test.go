package main

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestServersHaveTwoThreadsAtLeast(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, c := range []struct {
		environ      string
		before, want int
	}{{"", 1, 2}, {"", 3, 3}, {"1", 1, 1}} {
		t.Setenv("GOMAXPROCS", c.environ)
		runtime.GOMAXPROCS(c.before)
		useTwoThreads()
		require.Equal(t, c.want, runtime.GOMAXPROCS(0), "%+v", c)
	}
}
