package loglimit

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRejectionsInTheLogAreBounded(t *testing.T) {
	var b strings.Builder
	var l Log
	for range 1000 {
		l.Warn(slog.New(slog.NewTextHandler(&b, nil)), "rejected")
	}
	require.Less(t, strings.Count(b.String(), "rejected"), 100)
}
