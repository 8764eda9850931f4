package simulation

import (
	"context"
	"math/rand/v2"
	"time"
)

// cause causes a fault, and returns when it is over.
func (w *world) cause(cl *clients, f Fault) {
	rnd := rand.New(rand.NewPCG(f.Seed, 0))
	name := f.Host
	if name == Leader {
		name = nodes[rnd.IntN(len(nodes))]
		if m := w.leader(); m != nil {
			name = m.name
		}
	}
	w.trace(name, "fault %v begins", f)
	defer w.trace(name, "fault %v ends", f)
	began := time.Since(w.start)
	defer func() { w.disturbed(f, name, began) }()
	m := w.machines[name]
	switch f.Kind {
	case Crash, PowerOff:
		if !m.occupy() {
			return
		}
		ended := m.crash(f.Kind == PowerOff)
		w.crashed.Go(func() { <-ended })
		time.Sleep(f.For)
		w.network.restart(name)
		w.database.flush()
		m.launch()
	case Stop:
		if !m.occupy() {
			return
		}
		began := time.Now()
		m.halt()
		time.Sleep(f.For - time.Since(began))
		m.launch()
	case Pause:
		w.network.stall(name, 1)
		time.Sleep(f.For)
		w.network.stall(name, -1)
		w.database.flush()
	case Suspend:
		w.network.stall(name, 1)
		m.suspend(1)
		time.Sleep(f.For)
		m.suspend(-1)
		w.network.stall(name, -1)
		w.database.flush()
	case Partition, PartitionTo:
		there, back := direction{name, f.Peer}, direction{f.Peer, name}
		w.network.partition(there, 1)
		if f.Kind == Partition {
			w.network.partition(back, 1)
		}
		time.Sleep(f.For)
		w.network.partition(there, -1)
		if f.Kind == Partition {
			w.network.partition(back, -1)
		}
		w.database.flush()
	case Slow:
		d := direction{name, f.Peer}
		w.network.delay(d, time.Duration(rnd.Int64N(int64(200*time.Millisecond))))
		time.Sleep(f.For)
		w.network.delay(d, 0)
	case Reset:
		w.network.reset(name, rnd, rnd.Float64())
	case Flaky:
		pause, share := 1+rnd.Int64N(int64(200*time.Millisecond)), rnd.Float64()
		for end := time.Now().Add(f.For); time.Now().Before(end); time.Sleep(1 + time.Duration(rnd.Int64N(pause))) {
			w.network.reset(name, rnd, share)
		}
	case Hang:
		w.network.hang(name, rnd, rnd.Float64())
	case Statements:
		draw := func() int { return rnd.IntN(2) * rnd.IntN(200) }
		w.database.troubled(name, trouble{before: draw(), after: draw(), lost: draw(), late: draw(), hang: draw() / 4}, f.For)
	case SlowStatements:
		w.database.troubled(name, trouble{slow: time.Duration(rnd.Int64N(int64(time.Second)))}, f.For)
	case Outage:
		w.database.setDown(1)
		time.Sleep(f.For)
		w.database.setDown(-1)
	case Stall:
		w.network.stall(databaseHost, 1)
		time.Sleep(f.For)
		w.network.stall(databaseHost, -1)
		w.database.flush()
	case Refuse:
		w.network.refuse(name, 1)
		w.network.reset(name, rnd, 1)
		time.Sleep(f.For)
		w.network.refuse(name, -1)
	case ReadOnly:
		w.database.troubled(name, trouble{readOnly: true}, f.For)
	case Failing:
		w.database.troubled(name, trouble{before: 300}, f.For)
	case LateAnswers:
		w.database.troubled(name, trouble{answer: []time.Duration{90 * time.Millisecond,
			400 * time.Millisecond}[rnd.IntN(2)]}, f.For)
	case Late:
		w.database.troubled(name, trouble{answer: 200 * time.Millisecond, read: 400 * time.Millisecond}, f.For)
	case LateLists:
		w.database.troubled(name, trouble{list: time.Second}, f.For)
	case LateRemovals:
		w.database.troubled(name, trouble{removal: 200 * time.Millisecond}, f.For)
	case Loss:
		w.lose(cl, f.For, rnd)
	case Replace, Repeat, Even, Overtake, Unread:
		w.replace(cl, name, f.For, w.courseOf(f.Kind, name, rnd))
	case Move:
		to := m.running()
		if from := w.leader(); from != nil && to != nil {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			if leads := from.running(); leads != nil {
				w.trace(from.name, "moved to %s: %v", name, leads.MoveLeader(ctx, to.Replica().MemberID()))
			}
		}
	}
}
