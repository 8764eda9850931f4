package simulation

import (
	"testing"
	"time"
)

// TestLossOfCommitsIsNoticed simulates losses of the newest commits.
func TestLossOfCommitsIsNoticed(t *testing.T) {
	lost := 0
	for seed := range uint64(2) {
		p := NewPlan(seed)
		p.Duration = 5 * time.Second
		p.Faults = []Fault{{At: 2 * time.Second, For: time.Second, Kind: Loss, Host: databaseHost}}
		r := Run(t, p)
		report(t, p, r)
		lost += int(r.Stats.Lost)
	}
	if lost == 0 {
		t.Error("nothing was lost")
	}
}
