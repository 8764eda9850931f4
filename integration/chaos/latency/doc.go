// Package latency tests a cluster whose database is far away: writes, lists, leases, failovers, and lists and deletes
// of very many keys, with 2, 10 and 50 ms for a round trip to the database.
//
// It judges answers, and logs times: run it with -v for the figures of docs/cloud.md. How many statements things take
// is judged by the unit tests of packages replica, member and mysql.
package latency
