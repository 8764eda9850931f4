package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// connect opens n clients, each with its own connection to every endpoint.
func connect(ctx context.Context, cfg *Config, n int) ([]*clientv3.Client, error) {
	var clients []*clientv3.Client
	for range n {
		c, err := clientv3.New(clientv3.Config{
			Context:              context.WithoutCancel(ctx), // calls bring their own; closing comes last
			Endpoints:            cfg.Endpoints,
			DialTimeout:          cfg.RequestTimeout,
			DialKeepAliveTime:    30 * time.Second, // kube-apiserver's
			DialKeepAliveTimeout: 10 * time.Second,
			Logger:               zap.NewNop(), // errors reach the report
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect to %v: %w", cfg.Endpoints, err), closeAll(clients))
		}
		clients = append(clients, c)
	}
	return clients, nil
}

func closeAll(clients []*clientv3.Client) (err error) {
	for _, c := range clients {
		err = errors.Join(err, c.Close())
	}
	return err
}

// prepare reads the store's revision, and makes sure that nothing is kept below the prefix yet, unless
// an earlier run's objects are.
func (r *runner) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.RequestTimeout)
	defer cancel()
	resp, err := r.clients[0].Get(ctx, r.cfg.Prefix+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("read from %v: %w", r.cfg.Endpoints, err)
	}
	if resp.Count > 0 && r.cfg.After == nil {
		return fmt.Errorf("%w: %d below %s/", ErrPrefixInUse, resp.Count, r.cfg.Prefix)
	}
	r.model.see(resp.Header.Revision)
	return nil
}
