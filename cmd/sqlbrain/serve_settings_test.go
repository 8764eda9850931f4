package main

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
)

func TestReadConsistencyIsPassedOn(t *testing.T) {
	for _, tt := range []struct {
		value   string
		confirm bool
	}{{config.ReadLease, false}, {config.ReadDatabase, true}} {
		c := config.New().Config
		c.ReadConsistency = tt.value
		require.Equal(t, tt.confirm, backendConfig(&c, slog.New(slog.DiscardHandler), nil).ConfirmReads)
	}
}
