// Package quickstart runs the commands of the quick starts in docs/start, and of the pages for operators, as a reader
// would: in order, in one shell and one folder, with sqlbrain, etcd, kine and etcdctl in PATH.
//
// In the source of a page, the info string of a fenced block says what the test does with it:
//
//   - "sh test": run it with bash; it must succeed,
//   - "sh test background": start it, and wait until it logs that it is ready,
//   - "text output": the block before must have printed these lines, in this order,
//   - "sql test": execute it on the database server, as its administrator.
//
// A comment "<!-- test: stop N -->" interrupts the Nth program that was started, "<!-- test: restart N -->" starts it
// again. "<!-- typed: WORDS -->" types a line for each word into the next block, which has a terminal for that. A
// comment that begins with "sh test" or "sql test" is a block that readers do not see: it stands for what they have.
// Every other block of commands must have a comment "<!-- not run: REASON -->" above it.
//
// Other processes may use the ports that the pages name. The test puts free ports in their place.
package quickstart
