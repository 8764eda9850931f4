package main

import (
	"compress/gzip"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDescriptorSetIsUpToDate(t *testing.T) {
	f, err := os.Open("../../../../server/console/kubernetes/kinds.binpb.gz")
	require.NoError(t, err)
	defer f.Close()
	r, err := gzip.NewReader(f)
	require.NoError(t, err)
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	want, err := generate(t.Context())
	require.NoError(t, err)
	require.True(t, string(want) == string(got), "run go generate ./server/console/kubernetes")
}
