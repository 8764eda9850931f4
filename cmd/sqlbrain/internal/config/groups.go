package config

import "github.com/spf13/pflag"

// GroupOf is the annotation of a flag that names its group, for help.
const GroupOf = "group"

// groups are the titles of the groups of flags, and the first flag of each. A group ends where the
// next one begins.
var groups = []struct{ title, first string }{
	{"Member", "config-file"},
	{"Database", "datastore"},
	{"Clients", "listen-client-urls"},
	{"TLS", "cert-file"},
	{"Users and access", "auth-token"},
	{"Other members", "listen-peer-urls"},
	{"Election", "leader-answer-timeout"},
	{"Requests", "max-request-bytes"},
	{"Data and history", "quota-backend-bytes"},
	{"Watches", "watch-progress-notify-interval"},
	{"Commits", "batch-max-requests"},
	{"Memory", "index-cache-entries"},
	{"Logs, metrics and console", "log-level"},
	{"Tracing", "enable-distributed-tracing"},
}

// markGroups annotates all flags with the titles of their groups.
func (s *Settings) markGroups() {
	next, title := 0, ""
	s.flags.VisitAll(func(f *pflag.Flag) {
		if next < len(groups) && f.Name == groups[next].first {
			title = groups[next].title
			next++
		}
		f.Annotations = map[string][]string{GroupOf: {title}}
	})
	if next < len(groups) {
		panic("config: no flag " + groups[next].first + " where its group begins")
	}
}
