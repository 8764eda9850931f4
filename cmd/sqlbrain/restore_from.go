package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
	"github.com/sqlbrain/sqlbrain/server/snapshot"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// source is a running server to restore from. The flags are etcdctl's.
type source struct {
	endpoint          string
	tls               transport.TLSInfo
	user, password    string
	passwordFile      string
	prefix, directory string
}

func (s *source) bind(f *pflag.FlagSet) {
	f.StringVar(&s.endpoint, "from", "", "instead of a FILE, the `URL` of a running etcd, sqlbrain or kine, or of a continuous backup")
	f.StringVar(&s.tls.TrustedCAFile, "cacert", "", "with --from: `file` of the certificates that sign the server's")
	f.StringVar(&s.tls.CertFile, "cert", "", "with --from: `file` of the client's certificate")
	f.StringVar(&s.tls.KeyFile, "key", "", "with --from: `file` of its key")
	f.BoolVar(&s.tls.InsecureSkipVerify, "insecure-skip-tls-verify", false,
		"with --from: take any certificate of the server")
	f.StringVar(&s.user, "user", "", "with --from: `name`[:password] of a user that may do what root may")
	f.StringVar(&s.password, "password", "", "with --from: the user's `password`")
	f.StringVar(&s.passwordFile, "password-file", "",
		"with --from: `file` that holds the user's password, which would show in the list of processes on the command line")
	f.StringVar(&s.prefix, "prefix", "/", "with --from, where the server makes no snapshots: what all keys begin with")
	f.StringVar(&s.directory, "tmpdir", "", "with --from: `directory` for the snapshot (default: the system's)")
}

const (
	sourceDialTimeout = 10 * time.Second
	sourceKeepAlive   = 30 * time.Second
	// sourceMessage is the largest answer taken: a page of large values.
	sourceMessage = 1 << 30
)

func (s *source) dial(ctx context.Context) (*clientv3.Client, error) {
	cfg := clientv3.Config{
		Context: ctx, Endpoints: []string{s.endpoint}, DialTimeout: sourceDialTimeout, DialKeepAliveTime: sourceKeepAlive,
		DialKeepAliveTimeout: sourceDialTimeout,
		MaxCallRecvMsgSize:   sourceMessage, Logger: zap.NewNop(), Username: s.user, Password: s.password,
		DialOptions: []grpc.DialOption{grpc.WithDisableServiceConfig()},
	}
	var err error
	if cfg.Username, cfg.Password, err = s.credentials(); err != nil {
		return nil, err
	}
	if strings.HasPrefix(s.endpoint, "https://") || s.tls.TrustedCAFile != "" || s.tls.CertFile != "" {
		if cfg.TLS, err = s.tls.ClientConfig(); err != nil {
			return nil, err
		}
	}
	if err := reach(ctx, cfg); err != nil {
		return nil, err
	}
	return clientv3.New(cfg)
}

// credentials returns the user and the password, which one of the flags may give.
func (s *source) credentials() (name, password string, err error) {
	name, password, inName := strings.Cut(s.user, ":")
	switch {
	case inName && s.password != "":
		return "", "", &usageError{errors.New("--user and --password both have a password")}
	case s.passwordFile != "" && (inName || s.password != ""):
		return "", "", &usageError{errors.New("--password-file is given, and a password as well")}
	case s.passwordFile != "" && name == "":
		return "", "", &usageError{errors.New("--password-file needs --user")}
	case s.passwordFile != "":
		password, err = config.ReadPassword(s.passwordFile)
		if err != nil {
			err = fmt.Errorf("--password-file: %w", err)
		}
		return name, password, err
	case !inName:
		password = s.password
	}
	return name, password, nil
}

// reach returns why the server cannot be reached. The client's calls do not report that: they
// wait for a connection, without limit for a snapshot.
func reach(ctx context.Context, cfg clientv3.Config) (err error) {
	ctx, cancel := context.WithTimeout(ctx, sourceDialTimeout)
	defer cancel()
	cfg.Username, cfg.Password = "", "" // with a user the client waits as well
	client, err := clientv3.New(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	_, err = pb.NewMaintenanceClient(client.ActiveConnection()).Status(ctx, &pb.StatusRequest{})
	if code := status.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded {
		return nil // it answers, whatever it is
	}
	if alert := refusal(ctx, cfg); alert != nil {
		return alert
	}
	if !strings.HasPrefix(cfg.Endpoints[0], "https://") {
		err = fmt.Errorf("%w (the URL of a server with TLS has to begin with https://)", err)
	}
	return err
}

// refusal returns the alert by which a server refuses the certificate, nil if there is none. It comes
// after the handshake, and gRPC may have found by then that the connection is closed, which does
// not show the reason.
func refusal(ctx context.Context, cfg clientv3.Config) error {
	host, secure := strings.CutPrefix(cfg.Endpoints[0], "https://")
	if !secure {
		return nil
	}
	conn, err := (&tls.Dialer{Config: cfg.TLS}).DialContext(ctx, "tcp", host)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing was written
	deadline, _ := ctx.Deadline()
	if err := conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	if alert := (*net.OpError)(nil); errors.As(err, &alert) && alert.Op == "remote error" {
		return err
	}
	return nil
}

// load fills the database from the server: by its snapshot, or key by key if it makes
// none.
func (s *source) load(ctx context.Context, o snapshot.LoadOptions,
	into func(load) (*snapshot.Loaded, error), note func(string)) (_ *snapshot.Loaded, err error) {
	defer func() {
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("from %s: %w", s.endpoint, err)
		}
	}()
	client, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	file, err := s.fetch(ctx, client)
	if err == nil {
		defer func() { err = errors.Join(err, os.Remove(file)) }()
		return loadFile(ctx, file, false, o, into)
	}
	if local := (*fs.PathError)(nil); errors.As(err, &local) || !snapshot.Unsupported(err) {
		return nil, fmt.Errorf("its snapshot: %w", err)
	}
	note("the server makes no snapshots: its keys are copied as they are now, without their history")
	return into(func(store sqlstore.Store, progress func(snapshot.Progress)) (*snapshot.Loaded, error) {
		o.Progress = progress
		return snapshot.Copy(ctx, client, store, s.prefix, o)
	})
}

// fetch has the server's snapshot written to a file, and returns its name.
func (s *source) fetch(ctx context.Context, client *clientv3.Client) (_ string, err error) {
	in, err := client.Snapshot(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.CreateTemp(s.directory, "sqlbrain-restore-")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close()); err != nil {
		return "", errors.Join(err, os.Remove(out.Name()))
	}
	return out.Name(), nil
}
