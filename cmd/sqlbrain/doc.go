// Command sqlbrain is an etcd v3 server whose data lives in one SQL table.
//
// root.go lists the subcommands; each has its own file. Settings are in
// internal/config, the checks of `sqlbrain doctor` in internal/doctor. Start reading at serve.go.
package main
