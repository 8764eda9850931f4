package growth

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
)

const (
	batch       = 128 // puts of a transaction: etcd's --max-txn-ops
	loaders     = 16  // transactions at a time
	kineLoaders = 64  // puts at a time
)

// load writes all versions, each key's in order.
func (d *Dataset) load(ctx context.Context, product system.Product, clients []*clientv3.Client) error {
	for version := 1; version <= d.Versions; version++ {
		if err := d.write(ctx, product, clients, d.Keys, version); err != nil {
			return fmt.Errorf("load version %d: %w", version, err)
		}
	}
	return nil
}

// write puts one version of the first keys.
func (d *Dataset) write(ctx context.Context, product system.Product, clients []*clientv3.Client, keys, version int) error {
	size, limit := batch, loaders
	if product == system.Kine {
		size, limit = 1, kineLoaders
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(limit)
	for from := 0; from < keys && ctx.Err() == nil; from += size {
		c := clients[from/size%len(clients)]
		g.Go(func() error {
			if product == system.Kine {
				return d.writeOne(ctx, c, from, version)
			}
			var ops []clientv3.Op
			for n := from; n < min(from+size, keys); n++ {
				ops = append(ops, clientv3.OpPut(keyOf(n), string(valueOf(n, version, d.ValueSize))))
			}
			resp, err := c.Txn(ctx).Then(ops...).Commit()
			if err == nil && !resp.Succeeded {
				err = fmt.Errorf("the transaction from %d on did not succeed", from)
			}
			return err
		})
	}
	return g.Wait()
}

// writeOne is kube-apiserver's create, or update.
func (d *Dataset) writeOne(ctx context.Context, c *clientv3.Client, n, version int) error {
	key := keyOf(n)
	mod := int64(0)
	if version > 1 {
		now, err := c.Get(ctx, key)
		if err != nil {
			return err
		}
		if len(now.Kvs) != 1 {
			return fmt.Errorf("key %s is not there", key)
		}
		mod = now.Kvs[0].ModRevision
	}
	txn := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", mod)).
		Then(clientv3.OpPut(key, string(valueOf(n, version, d.ValueSize))))
	if version > 1 {
		txn = txn.Else(clientv3.OpGet(key))
	}
	resp, err := txn.Commit()
	if err == nil && !resp.Succeeded {
		err = fmt.Errorf("version %d of %s was refused", version, key)
	}
	return err
}
