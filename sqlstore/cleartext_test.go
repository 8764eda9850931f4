package sqlstore

import "testing"

// TestWhoMayAskForClearText: a server whose name was not verified could be
// anybody, and would be told the password.
func TestWhoMayAskForClearText(t *testing.T) {
	t.Parallel()
	for parameters, want := range map[string]bool{"": false, "?tls=true": true, "?tls=skip-verify": false, "?tls=preferred": false, "?tls=false": false} {
		u, err := ParseURL("mysql://u:p@db/n" + parameters)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := mysqlConfig(u)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.AllowCleartextPasswords != want {
			t.Errorf("%q: clear text is allowed: %v", parameters, cfg.AllowCleartextPasswords)
		}
	}
}
