package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// checkTimeouts looks for bounds that would end statements or connections of the
// server's.
func (s *server) checkTimeouts() {
	const (
		// leastIdle is below what a quiet server leaves between two statements.
		leastIdle = time.Minute
		// leastStatement is what a long list may take on a busy server.
		leastStatement = 10 * time.Second
	)
	var short []string
	found := func(name string, bound, least time.Duration) {
		if bound > 0 && bound < least {
			short = append(short, fmt.Sprintf("%s is %s, less than %s", name, bound, least))
		}
	}
	found("wait_timeout", time.Duration(s.vars.number("wait_timeout"))*time.Second, leastIdle)
	// MySQL's is in milliseconds, MariaDB's in seconds with decimals.
	found("max_execution_time", time.Duration(s.vars.number("max_execution_time"))*time.Millisecond, leastStatement)
	if seconds, err := strconv.ParseFloat(s.vars["max_statement_time"], 64); err == nil {
		found("max_statement_time", time.Duration(seconds*float64(time.Second)), leastStatement)
	}
	if len(short) > 0 {
		s.add("timeouts", Warn, strings.Join(short, "; "),
			"statements or idle connections are ended, and tried again: raise it for this user")
		return
	}
	s.ok("timeouts", "wait_timeout is %s", time.Duration(s.vars.number("wait_timeout"))*time.Second)
}
