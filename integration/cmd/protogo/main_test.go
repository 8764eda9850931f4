package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGeneratedCodeIsUpToDate(t *testing.T) {
	const root = "../../.."
	files, err := generate(t.Context(), root, "server/cluster/feed/feedpb/peer.proto")
	require.NoError(t, err)
	require.Len(t, files, len(plugins))
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		require.Equal(t, want, string(got), "%s: run make generate", name)
	}
}
