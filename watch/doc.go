// Package watch distributes committed changes to watchers.
//
// A Hub holds a ring of recent events and an index of watchers by key and
// range. Publish puts new events into the ring and into the queues of the
// watchers they concern; it waits for nobody. A watcher that starts in the past,
// or whose queue is full, is behind: the hub's catch-up workers replay history
// for it, from the ring or from the durable Source, until it meets the ring
// again. A Stream is one client stream: any number of watchers, and one queue of
// responses in the order in which they must be sent.
//
// The package upholds these invariants of the design:
//
//   - Watch is exact. A watcher gets each matching event from its start revision
//     on, once, in order, all events of one revision in one response; or it is
//     cancelled with the compact revision. A slow one catches up; it is neither
//     dropped, nor does anybody wait for it.
//   - Progress never overtakes. A progress response with revision R stands in the
//     stream's queue behind every event up to R of the watchers it speaks for.
//   - Nothing is silently ignored. A create that cannot be served is answered with
//     the reason, as etcd does; a Source that fails is asked again, logged and
//     counted.
//
// Start reading at Hub.Publish in hub.go, then Stream.Create in stream.go,
// Stream.Next in queue.go and Hub.catchUp in catchup.go. DESIGN.md has the idea and
// the trade-offs.
package watch
