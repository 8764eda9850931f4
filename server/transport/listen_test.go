package transport

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestListenURLs(t *testing.T) {
	for raw, want := range map[string]endpoint{
		"http://127.0.0.1:2379":  {network: "tcp", address: "127.0.0.1:2379"},
		"https://[::1]:0/":       {network: "tcp", address: "[::1]:0", secure: true},
		"unix:///run/x.sock":     {network: "unix", address: "/run/x.sock"},
		"unix://x.sock":          {network: "unix", address: "x.sock"},
		"unixs://localhost:1234": {network: "unix", address: "localhost:1234", secure: true},
	} {
		got, err := parseEndpoint(raw)
		require.NoError(t, err)
		want.url = raw
		require.Equal(t, want, got)
	}
	for raw, want := range map[string]string{
		"127.0.0.1:2379":          "is not a URL",
		"tcp://127.0.0.1:2379":    "must begin with",
		"http://127.0.0.1":        "needs a port",
		"http://127.0.0.1:1/path": "must end after the port",
		"unix://":                 "needs a path",
	} {
		_, err := parseEndpoint(raw)
		require.ErrorContains(t, err, want, raw)
	}
}
