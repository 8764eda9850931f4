package console

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeysAreGroupedByPrefix(t *testing.T) {
	for key, want := range map[string]string{
		"":                                   "",
		"hello":                              "",
		"/":                                  "/",
		"/a":                                 "/",
		"/a/b/c/d":                           "/a/b/",
		"a/b/c":                              "a/b/",
		"/registry/pods/default/web":         "/registry/pods/",
		"/registry/apps.k8s.io/things/x/y":   "/registry/apps.k8s.io/things/",
		"/registry/services/specs/default/x": "/registry/services/",
		"/registry/health":                   "/registry/",
		"/other/a.b/c/d":                     "/other/a.b/",
	} {
		require.Equal(t, want, string(group([]byte(key))), key)
	}
}

func TestNumberOfCountedPrefixesIsBounded(t *testing.T) {
	c := counter{groups: map[string]*sizeBody{}}
	for i := range 2 * maxGroups {
		c.add(fmt.Appendf(nil, "/a/%d/x", i), 10)
	}
	require.Len(t, c.groups, maxGroups+1)
	require.EqualValues(t, maxGroups, c.groups[otherGroup].Keys)
	require.EqualValues(t, 2*maxGroups, c.Keys)
	require.EqualValues(t, 20*maxGroups, c.Bytes)
}
