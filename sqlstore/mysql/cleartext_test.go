package mysql

import (
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// TestOnlyVerifiedServersMayAskForClearText: another server than the one meant would
// get the password.
func TestOnlyVerifiedServersMayAskForClearText(t *testing.T) {
	t.Parallel()
	for parameters, want := range map[string]bool{"": false, "?tls=true": true, "?tls=skip-verify": false,
		"?tls=preferred": false, "?tls=false": false} {
		u, err := sqlstore.ParseURL("mysql://u:p@db/n" + parameters)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := configOf(u)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.AllowCleartextPasswords != want {
			t.Errorf("%q: clear text is allowed: %v", parameters, cfg.AllowCleartextPasswords)
		}
	}
}
