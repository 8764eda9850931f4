package transport

import (
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

func TestJSONIsBoundedByValue(t *testing.T) {
	decode := func(body string) (n int, err error) {
		d := boundedJSON{JSONPb: &runtime.JSONPb{}, maxBytes: 64}.NewDecoder(strings.NewReader(body))
		for ; err == nil; n++ {
			err = d.Decode(&pb.WatchRequest{})
		}
		return n - 1, err
	}
	n, err := decode(strings.Repeat(`{} {"create_request":{"key":"aw=="}}`, 100))
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, 200, n, "values that fit, of a body that is larger")
	for _, long := range []string{
		`{"create_request":{"key":"` + strings.Repeat("a", 200), // and never ends
		strings.Repeat(" ", 200) + "{}",
		strings.Repeat(" ", 200),
	} {
		n, err = decode("{}" + long)
		require.ErrorIs(t, err, errJSONTooLarge, long)
		require.Equal(t, 1, n, long)
	}

	d := boundedJSON{JSONPb: &runtime.JSONPb{},
		maxBytes: 1 << 20}.NewDecoder(strings.NewReader(`{"create_request":{"watch_id":"` + strings.Repeat("ä", 100_000) +
		`"}}`))
	err = d.Decode(&pb.WatchRequest{})
	require.Error(t, err)
	require.Less(t, len(err.Error()), 2*maxJSONErrorBytes)
	require.True(t, utf8.ValidString(err.Error()))
}
