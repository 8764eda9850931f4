package growth

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
	"github.com/sqlbrain/sqlbrain/integration/internal/workload"
)

// failoverWait bounds the time without an acknowledged write.
const failoverWait = 2 * time.Minute

// starts stops the server in order and starts it again, so many times.
func (m *measurement) starts(ctx context.Context) error {
	for range m.cfg.Repeats {
		if err := m.r.StopNode(0); err != nil {
			return err
		}
		began := time.Now()
		if err := m.r.StartNode(ctx, 0); err != nil { // which returns at the first answer
			return err
		}
		m.p.Starts = append(m.p.Starts, time.Since(began).Seconds())
	}
	m.p.IdleServerRSS = workload.UsageOf(m.r.Server(0)).RSSBytes
	m.tell("starts %.3f s, RSS %d MiB", m.p.Starts, m.p.IdleServerRSS>>20)
	return nil
}

// failovers kills the server that leads, so many times. Where the database is a
// server, another node of sqlbrain takes over; kine's nodes are all alike.
func (m *measurement) failovers(ctx context.Context) error {
	m.p.Nodes = 1
	if m.r.System.Product == system.Sqlbrain && m.r.System.Engine.Server() {
		m.p.Nodes = 2
		if err := m.r.AddNode(ctx); err != nil {
			return err
		}
	}
	leader := 0
	for range m.cfg.Repeats {
		next := (leader + 1) % m.p.Nodes
		c, err := system.Connect(m.r.Endpoint(next))
		if err != nil {
			return err
		}
		took, err := m.failover(ctx, c, leader)
		if err := c.Close(); err != nil {
			return err
		}
		if err != nil {
			return err
		}
		m.p.Failovers = append(m.p.Failovers, took.Seconds())
		if m.p.Nodes > 1 {
			if err := m.r.StartNode(ctx, leader); err != nil {
				return err
			}
		}
		leader = next
	}
	m.tell("failovers %.3f s, %d nodes", m.p.Failovers, m.p.Nodes)
	return nil
}

// write is kube-apiserver's creation of an object.
func write(ctx context.Context, c *clientv3.Client) error {
	key := fmt.Sprintf("/registry/failover/%d", time.Now().UnixNano())
	_, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, "x")).Commit()
	return err
}

// failover kills the leader and returns how long no write was acknowledged.
func (m *measurement) failover(ctx context.Context, c *clientv3.Client, leader int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, failoverWait)
	defer cancel()
	if err := write(ctx, c); err != nil { // the connection is there, and writes go through
		return 0, err
	}
	began := time.Now()
	if err := m.r.KillNode(leader); err != nil {
		return 0, err
	}
	if m.p.Nodes == 1 {
		if err := m.r.StartNode(ctx, leader); err != nil {
			return 0, err
		}
	}
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		err := write(attempt, c)
		cancel()
		if err == nil {
			return time.Since(began), nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("no write for %s: %w", failoverWait, err)
		case <-poll.C:
		}
	}
}
