package mysql

import "testing"

func TestBinaryLogThatACrashShortens(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, value string
		want        bool
	}{
		{"sync_binlog", "0", true},
		{"sync_binlog", "1000", true},
		{"sync_binlog", "1", false},
		{"log_bin", "OFF", false},
		{"binlog_storage_engine", "", true},
		{"binlog_storage_engine", "InnoDB", false},
	} {
		vars := map[string]string{"log_bin": "ON", "sync_binlog": "0"}
		vars[c.name] = c.value
		if got := losesBinlog(vars); got != c.want {
			t.Errorf("%s=%q: %t, want %t", c.name, c.value, got, c.want)
		}
	}
}
