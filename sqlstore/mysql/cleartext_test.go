package mysql

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// TestOnlyVerifiedServersMayAskForClearText: another server than the one meant would
// get the password.
func TestOnlyVerifiedServersMayAskForClearText(t *testing.T) {
	t.Parallel()
	for parameters, want := range map[string]bool{"": false, "?tls=true": true, "?tls=skip-verify": false,
		"?tls=preferred": false, "?tls=false": false} {
		u, err := sqlstore.ParseURL("mysql://u:p@db/n" + parameters)
		require.NoError(t, err)
		cfg, err := configOf(u)
		require.NoError(t, err)
		require.Equal(t, want, cfg.AllowCleartextPasswords, parameters)
	}
}
