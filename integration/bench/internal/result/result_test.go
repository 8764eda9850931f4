package result

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/plan"
)

func TestSpread(t *testing.T) {
	require.True(t, math.IsNaN(SpreadOf(nil).Median))
	require.Equal(t, Spread{2, 1, 9}, SpreadOf([]float64{9, 1, 2}))
	require.Equal(t, Spread{3, 1, 9}, SpreadOf([]float64{9, 1, 2, 4}))
}

func TestQuantile(t *testing.T) {
	require.True(t, math.IsNaN(Quantile(nil, 0.5)))
	require.Equal(t, 2.0, Quantile([]float64{3, 2, 1}, 0.5))
	require.Equal(t, 3.0, Quantile([]float64{3, 2, 1}, 0.99))
}

func TestFileIsReadBackAndContinued(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "results.json")
	f, err := Read(path)
	require.NoError(t, err)
	require.Nil(t, f)
	f = &File{Versions: map[string]string{"etcd": "3"}, Options: plan.Quick}
	f.Add(Figure{System: "etcd", Cell: plan.Cell{ID: "get-1"}, Status: OK, PerSecond: 5})
	f.Add(Figure{System: "etcd", Cell: plan.Cell{ID: "get-64"}, Status: Failed})
	require.NoError(t, Write(path, f))
	back, err := Read(path)
	require.NoError(t, err)
	require.Equal(t, f, back)
	require.True(t, back.Has("etcd", 0, "get-1"))
	require.False(t, back.Has("etcd", 1, "get-1"))
	require.False(t, back.Has("etcd", 0, "get-64"), "what failed is tried again")
	back.Add(Figure{System: "etcd", Cell: plan.Cell{ID: "get-64"}, Status: OK})
	require.Len(t, back.Figures, 2)
	require.NoError(t, back.Continue(map[string]string{"etcd": "3", "kine": "1"}, plan.Quick))
	require.Equal(t, map[string]string{"etcd": "3", "kine": "1"}, back.Versions)
	require.ErrorContains(t, back.Continue(map[string]string{"etcd": "4"}, plan.Quick), "etcd was 3, and is 4")
	require.Error(t, back.Continue(map[string]string{"etcd": "3"}, plan.Full))
}
