package main

import (
	"errors"
	"net"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/etcdctl/v3/ctlv3"
)

// etcdctl takes the beginning of a command's name for the command. sqlbrain does not, and cobra has one setting for
// both.
func init() { cobra.EnablePrefixMatching = false }

func (p *program) newCtlCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ctl COMMAND",
		Short: "Be etcdctl, for the server that runs here",
		Long: `This is etcdctl, with its commands, flags and variables (ETCDCTL_USER and so on): "sqlbrain ctl
help" lists the commands, "sqlbrain ctl options" the flags of all of them.

Without --endpoints and ETCDCTL_ENDPOINTS it calls the server that runs with these settings: the
first URL of --listen-client-urls, from SQLBRAIN_LISTEN_CLIENT_URLS or the file that
SQLBRAIN_CONFIG_FILE names.`,
		Example: `  sqlbrain ctl put greeting hello
  sqlbrain ctl get --prefix ""
  sqlbrain ctl --endpoints=n1:2379,n2:2379 endpoint status --write-out=table`,
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return p.ctl(args) },
	}
}

// ctl runs etcdctl, which ends the process if it fails, and writes to the process's own output.
func (p *program) ctl(args []string) error {
	given := func(arg string) bool { return arg == "--endpoints" || strings.HasPrefix(arg, "--endpoints=") }
	if !slices.ContainsFunc(args, given) && os.Getenv("ETCDCTL_ENDPOINTS") == "" {
		if err := p.settings.Load(p.environ); err != nil {
			return err
		}
		endpoint, err := localEndpoint(p.settings.Server.ListenClientURLs[0])
		if err != nil {
			return err
		}
		// A variable, because etcdctl adds the endpoints of a second flag to those of the first.
		if err := os.Setenv("ETCDCTL_ENDPOINTS", endpoint); err != nil {
			return err
		}
	}
	signal.Reset(os.Interrupt, syscall.SIGTERM) // they end etcdctl, and some of its commands notice them
	cobra.EnablePrefixMatching = true
	os.Args = append([]string{"etcdctl"}, args...) // what watch and Start read
	ctlv3.MustStart()
	return nil
}

// localEndpoint returns the endpoint of the server that listens on the URL raw.
func localEndpoint(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", err
	}
	if u.Port() == "0" {
		return "", errors.New("only the server knows which port it chose; name it with --endpoints")
	}
	if ip := net.ParseIP(u.Hostname()); ip.IsUnspecified() {
		u.Host = net.JoinHostPort("localhost", u.Port())
	}
	return u.String(), nil
}
