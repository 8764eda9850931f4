package simulation

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Special plans cause what the faults of other plans cause rarely, because it needs several at a time, or a long one.
// Of each 60 seeds, 54 have one, and 55 after the first 60.

// replacements are the kinds of Replace in plans of one kind, by the number of the 60 seeds.
var replacements = map[uint64][]Kind{
	2: {Repeat, Even, Repeat, Replace, Repeat, Even, Replace, Replace},
	5: {Overtake, Unread, Overtake, Overtake, Unread, Overtake, Replace, Replace},
}

// special makes the plan a special one if its seed has one, and returns true if the plan is complete.
func (p *Plan) special(r *rand.Rand) (complete bool) {
	between := func(lo, hi time.Duration) time.Duration {
		return (lo + time.Duration(r.Int64N(int64(hi-lo)))).Round(time.Millisecond)
	}
	load := &p.Workload
	switch p.Seed / kindsOfPlans % 10 {
	case 0:
		if p.Seed < 60 || p.Seed%kindsOfPlans != 4 {
			return p.plain()
		}
		if p.Seed%120 == 4 { // long leases, which are renewed rarely while the leader changes in order
			load.TTL, load.Clients = 14+r.IntN(6), 1
			p.Faults = nil
			for at := between(4*time.Second, 8*time.Second); at < 24*time.Second; at += between(4*time.Second, 8*time.Second) {
				p.Faults = append(p.Faults, Fault{At: at, Kind: Move, Host: nodes[r.IntN(len(nodes))]})
			}
			p.end(4 * time.Second)
			return true
		}
		// Leases are renewed after a checkpoint has written less, and then their leader fails.
		load.Half, load.TTL, load.Think = true, 14+r.IntN(5), between(200*time.Millisecond, 600*time.Millisecond)
		for at := between(8*time.Second, 11*time.Second); at < 24*time.Second; at += between(3*time.Second, 5*time.Second) {
			p.Faults = append(p.Faults, Fault{At: at, For: between(500*time.Millisecond, 1500*time.Millisecond), Kind: Crash,
				Host: Leader})
		}
		p.end(time.Second)
	case 1: // faults that last, one at a time
		load.Clients, load.Think, load.Watchers, load.Leases, load.Compact = 1,
			between(100*time.Millisecond, 600*time.Millisecond), 1, r.IntN(2), 0
		p.Faults = lasting(int(p.Seed/60*kindsOfPlans+p.Seed%kindsOfPlans), r, between)
		p.end(time.Second)
	case 2: // reads overlap with commits
		load.Clients, load.Burst, load.Think, load.Keys, load.Watchers, load.Leases = 3, 2+r.IntN(4),
			between(5*time.Millisecond, 30*time.Millisecond), 6+r.IntN(6), 1, 0
		load.Compact, load.Compactors = between(50*time.Millisecond, 200*time.Millisecond), 2
		p.Settings.Latency, p.Settings.IndexCache, p.Settings.RecordCache = between(5*time.Millisecond, 30*time.Millisecond),
			2+r.IntN(4), []int{1 << 11, 1 << 12}[r.IntN(2)]
		p.Settings.BatchRequests = 256
		if p.Seed%2 == 0 {
			load.Keys, p.Settings.RecordCache = 12+r.IntN(8), 1<<13
		}
		p.Duration = between(4*time.Second, 6*time.Second)
		return false
	case 3: // leaders without the database that hold on to leases, and slow revocations
		load.Clients, load.Think, load.Watchers, load.Leases, load.TTL = 1,
			between(200*time.Millisecond, 600*time.Millisecond), 1, 6, 4+r.IntN(6)
		if p.Seed%2 == 0 {
			load.TTL, load.Renew = 3, true
			p.Faults = []Fault{{At: between(time.Second, 3*time.Second), For: between(8*time.Second, 10*time.Second),
				Kind: Partition, Host: Leader, Peer: databaseHost}}
		} else {
			load.TTL = 3
			p.Faults = []Fault{{At: between(time.Second, 2*time.Second), For: between(8*time.Second, 11*time.Second),
				Kind: SlowStatements, Host: Leader, Seed: r.Uint64()}}
		}
		p.end(time.Second)
	case 4: // followers without a feed see commits before their leader knows that they are in the table
		load.Clients, load.Think, load.Watchers, load.Leases, load.Burst, load.Stale = 2,
			between(5*time.Millisecond, 25*time.Millisecond), 1, 0, 0, true
		if load.Compact = 0; p.Seed%2 == 1 { // and have to forget what they know
			load.Compact, p.Settings.Latency, p.Settings.RecordCache = between(50*time.Millisecond, 200*time.Millisecond),
				between(5*time.Millisecond, 30*time.Millisecond), 1<<14
		}
		refuse := Fault{At: between(300*time.Millisecond, time.Second), For: 3 * time.Second, Kind: Refuse, Host: Leader}
		if p.Seed%kindsOfPlans == 5 { // compaction overtakes what they show, while they read
			load.Keys, load.Burst, load.Compact, load.Compactors, p.Settings.RecordCache = 20+r.IntN(40), 0,
				between(100*time.Millisecond, 400*time.Millisecond), 1, 1<<20
			p.Settings.Latency = 0
			away := Fault{At: refuse.At, For: 6 * time.Second, Kind: Partition, Host: nodes[1], Peer: nodes[0]}
			late := away
			late.Kind, late.Peer = LateLists, ""
			p.Faults = []Fault{{At: away.At - 200*time.Millisecond, Kind: Move, Host: nodes[0]}, away, late}
			p.end(500 * time.Millisecond)
			return true
		}
		late := refuse
		late.Kind, late.Seed = LateAnswers, r.Uint64()
		p.Faults = []Fault{refuse, late}
		p.end(500 * time.Millisecond)
	case 5: // lost commits
		p.Faults = []Fault{{At: between(time.Second, 3*time.Second), For: between(50*time.Millisecond, time.Second),
			Kind: Loss, Host: databaseHost, Seed: r.Uint64()}}
		load.Leases = 0
		if p.Seed%6 == 3 { // the leader knows more of them than those that record the loss first
			load.Clients, load.Think, load.Burst, load.Compact = 3, between(5*time.Millisecond, 20*time.Millisecond), 0, 0
			at, age := p.Faults[0].At, p.Faults[0].For
			p.Faults = append(p.Faults, Fault{At: at, For: age + 2*time.Second, Kind: Refuse, Host: Leader},
				Fault{At: at + age - 5*time.Millisecond, For: 1500 * time.Millisecond, Kind: Pause, Host: Leader})
			p.end(2 * time.Second)
			return true
		}
		if p.Seed%3 > 0 {
			load.Clients, load.Think, load.Burst, load.Compact = 2, between(20*time.Millisecond, 100*time.Millisecond), 0, 0
			load.Same = p.Seed%2 == 0
			p.Faults[0].Kind, p.Faults[0].Host, p.Faults[0].Seed = Replace, nodes[r.IntN(len(nodes))], r.Uint64()
			if kinds, ok := replacements[p.Seed%kindsOfPlans]; ok {
				p.Faults[0].Kind = kinds[p.Seed/60%uint64(len(kinds))]
			}
			switch p.Faults[0].Kind {
			case Repeat, Even: // clients ask a node that was there before and has not found out yet
				load.Same, load.Newest, load.Think, p.Settings.BatchRequests = false, true,
					between(50*time.Millisecond, 150*time.Millisecond), 1
				if p.Faults[0].Kind == Repeat {
					p.Faults[0].For += 300 * time.Millisecond
				}
			case Overtake: // much is written
				load.Same, load.Clients, load.Think = true, 4, between(5*time.Millisecond, 15*time.Millisecond)
			case Unread: // more was lost than is written until the loss is recorded
				p.Faults[0].For = between(6*time.Second, 8*time.Second)
				load.Clients, load.Think = 1, between(300*time.Millisecond, 600*time.Millisecond)
			}
			p.end(12 * time.Second)
			return true
		}
		// Rows are being removed when commits are lost.
		load.Clients, load.Think, load.Burst, load.Keys = 3, between(5*time.Millisecond, 30*time.Millisecond), 0,
			24+r.IntN(24)
		load.Compact, load.Compactors, p.Settings.Latency = between(20*time.Millisecond, 100*time.Millisecond), 2,
			between(5*time.Millisecond, 40*time.Millisecond)
		if p.Seed >= 60 { // removals are under way for long
			p.Settings.Latency, p.Faults[0].For = 0, between(200*time.Millisecond, time.Second)
			p.Faults = append(p.Faults, Fault{At: p.Faults[0].At, For: p.Faults[0].For + 3*time.Second, Kind: LateRemovals,
				Host: Leader})
		}
		p.end(2 * time.Second)
	case 6: // keys change while nodes with little memory read them
		load.Single, load.Clients, load.Burst, load.Think, load.Keys = true, 3, 4+r.IntN(4),
			between(5*time.Millisecond, 20*time.Millisecond), 24+r.IntN(12)
		load.Watchers, load.Leases, load.Compact, p.Duration = 1, 0, 0, 3*time.Second
		p.Settings.Latency, p.Settings.RecordCache,
			p.Settings.BatchRequests = between(5*time.Millisecond, 30*time.Millisecond), 2560, 256
	case 8:
		if p.Seed%kindsOfPlans < 3 { // leases that are granted again as they end
			load.Clients, load.Think, load.Watchers, load.Leases, load.Again, load.Burst, load.Compact = 1,
				between(50*time.Millisecond, 200*time.Millisecond), 1, 6, true, 0, 0
			p.Faults = []Fault{{At: between(300*time.Millisecond, time.Second), For: between(9*time.Second, 12*time.Second),
				Kind: Late, Host: Leader}}
			p.end(500 * time.Millisecond)
			return true
		}
		// Changes of the leader while packets of one direction are lost, or while the database answers nothing.
		load.Clients, load.Think, load.Watchers, load.Leases, load.TTL, load.Burst, load.Renew = 2,
			between(20*time.Millisecond, 150*time.Millisecond), 1, 3, 3, 0, p.Seed%4 == 0
		hosts := append(slices.Clone(nodes), Leader, Leader)
		for at := between(time.Second, 2*time.Second); at < 8*time.Second; at += between(2*time.Second, 4*time.Second) {
			move := Fault{At: at, Kind: []Kind{Move, Move, Stop}[r.IntN(3)], Host: hosts[r.IntN(len(nodes))]}
			during := Fault{At: at + between(-300*time.Millisecond, 300*time.Millisecond),
				For: between(50*time.Millisecond, 3*time.Second), Seed: r.Uint64()}
			if during.Kind, during.Host = Stall, databaseHost; p.Seed%2 == 0 {
				during.Kind, during.Host = PartitionTo, hosts[r.IntN(len(hosts))]
				during.Peer = append(slices.Clone(nodes), databaseHost)[r.IntN(len(nodes)+1)]
			}
			p.Faults = append(p.Faults, move, during)
		}
		p.end(time.Second)
	case 9: // counts, or old revisions on old leaders
		load.Watchers, load.Leases, load.Burst = 1, 0, 4+r.IntN(6)
		if p.Settings.RecordCache = 0; p.Seed%2 == 0 {
			load.Counts, load.Keys, p.Settings.SpanKeys, p.Settings.CountChanges = true, 20+r.IntN(20), 8,
				[]int{8, 256}[r.IntN(2)]
			load.Compact = 0
			return false
		}
		load.Past, load.Compact = true, between(300*time.Millisecond, 700*time.Millisecond)
		for at := between(500*time.Millisecond, time.Second); at < 8*time.Second; at += between(4*time.Second,
			6*time.Second) {
			p.Faults = append(p.Faults, Fault{At: at, For: between(2500*time.Millisecond, 3500*time.Millisecond), Kind: Pause,
				Host: Leader})
		}
		p.end(time.Second)
	default:
		return p.plain()
	}
	return true
}

// plain makes a plan without a special one have many events at times. It returns false.
func (p *Plan) plain() (complete bool) {
	if p.Seed%kindsOfPlans == 3 && p.Seed/kindsOfPlans%2 == 0 {
		p.Workload.Wide, p.Settings.RingEvents = 40, 1<<12
	}
	return false
}

// end ends the plan some time after its last fault.
func (p *Plan) end(after time.Duration) {
	p.Duration = 0
	for _, f := range p.Faults {
		p.Duration = max(p.Duration, f.At+f.For+after)
	}
}

// lasting returns one fault that lasts, or several that belong together: the n-th of eight kinds, which take turns.
func lasting(n int, r *rand.Rand, between func(lo, hi time.Duration) time.Duration) []Fault {
	at := between(500*time.Millisecond, 2*time.Second)
	fault := func(kind Kind, length time.Duration, peer string) Fault {
		return Fault{At: at, For: length, Kind: kind, Host: Leader, Peer: peer, Seed: r.Uint64()}
	}
	switch n % 8 {
	case 0:
		return []Fault{fault(PowerOff, lastingTime+time.Second, "")}
	case 1:
		return []Fault{fault(Partition, lastingTime+time.Second, databaseHost)}
	case 2:
		return []Fault{fault(Pause, lastingTime+time.Second, "")}
	case 3:
		return []Fault{fault(ReadOnly, lastingTime+quietTime+time.Second, "")}
	case 4:
		return []Fault{fault(Refuse, lastingTime, "")}
	case 5:
		return []Fault{fault(Partition, lastingTime, nodes[0]), fault(Partition, lastingTime, nodes[1])}
	case 6: // leaders that fail to lead
		faults := []Fault{fault(Move, 0, "")}
		faults[0].Host = nodes[r.IntN(len(nodes))]
		for _, node := range nodes {
			failing := fault(Failing, 5*time.Second, "")
			failing.Host = node
			faults = append(faults, failing)
		}
		return faults
	default: // the database is away when the lock is to be released
		away := fault(Outage, between(4*time.Second, 6*time.Second), "")
		away.Host = databaseHost
		away.At += between(time.Millisecond, 20*time.Millisecond)
		faults := []Fault{away}
		for _, node := range nodes[:2] { // one of them does not lead
			move := fault(Move, 0, "")
			move.Host = node
			faults = append(faults, move)
		}
		return faults
	}
}
