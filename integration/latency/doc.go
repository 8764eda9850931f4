// Package latency tests a cluster whose database is far away: writes, lists, leases, failovers, and lists and deletes of
// very many keys, with 2, 10 and 50 ms for a round trip to the database.
//
// A time is judged only where a fault shows by far: a delete has to end within the time of a request, and a failover must
// not take what the lock takes to expire, which is what is left if it is not noticed that the process is gone.
package latency
