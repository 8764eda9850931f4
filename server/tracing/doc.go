// Package tracing follows requests with OpenTelemetry, from the call of a client to
// the statements that the database executes for it.
//
// A trace of a put that a follower forwards:
//
//	etcdserverpb.KV/Put          the follower's, as the client called it
//	  etcdserverpb.KV/Put        the follower calls the leader
//	    etcdserverpb.KV/Put      the leader's
//	      write                  from the queue to the outcome (server/replica)
//	        batch                evaluating and committing, for many requests at a time
//	          sql commit_tx      (sqlstore)
//
// A batch serves many requests: it belongs to the trace of the first of them that is
// traced, and links to the others, whose writes link to it.
//
// Guarantees:
//
//   - Spans name methods and statements. No key, value, password or address of the
//     database is in them, and no text of an error that might hold one.
//   - Only requests are traced; background work of members is not.
//   - Tracing that is off costs nothing: nothing is wrapped, and the hooks of the layers below compare a
//     pointer with nil.
//   - A collector that is away, or slow, costs spans and nothing else: what cannot be
//     sent in time is dropped.
//
// Start reading at tracing.go.
package tracing
