// Package watch distributes committed changes to watchers.
//
// A Hub holds a ring of recent events and an index of watchers by key and
// range. Publish puts new events into the ring and into the queues of the
// watchers they match, and never waits. A watcher that starts in the past,
// or whose queue is full, is lagging: the hub's catch-up workers replay history
// for it, from the ring or from the durable Source, until it has reached the newest
// event. A Stream is one client stream: any number of watchers, and one queue of
// responses in the order in which they must be sent.
//
// The package upholds these invariants of the design:
//
//   - Watch is exact. A watcher gets each matching event, starting at its start
//     revision, once and in order, all events of one revision in one response; or it is
//     cancelled with the compact revision. A slow watcher is not dropped and delays no
//     other; it catches up.
//   - Progress never overtakes. A progress response with revision R follows in the
//     stream's queue every event up to R of the watchers that it covers.
//   - Nothing is silently ignored. A create that cannot be served is answered with
//     the reason, as etcd does; a Source that fails is asked again, logged and
//     counted.
//
// Start reading at Hub.Publish in hub.go, then Stream.Create and Stream.Next in stream.go,
// queue.go and Hub.catchUp in catchup.go. DESIGN.md has the design and
// the trade-offs.
package watch
