// Package model checks the protocol of several nodes with Spin: *.pml are models in Promela, whose every reachable
// state is visited. The tests also take each safeguard out of the models, and expect that Spin finds what goes wrong.
// docs/model.md explains the models, what they leave out, and which code they stand for.
//
// Replay validates the steps that nodes have recorded, with package server/steptrace: it takes them in one of the
// models. Start reading at validate.go and replay.pml.
//
// The tests need spin and a C compiler. Without them they are skipped; with SQLBRAIN_REQUIRE_ENGINES=1 they fail.
package model
