package upgrade

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// pinned is the previous version until a release is tagged: the last commit before a leader wrote rarely. Its members
// expect heartbeats from a leader that later members hear by the feed, look at the lock row more often, and merge no
// events. It needs no module that this version does not need.
const pinned = "406646f5201d8d0182bae784acfdac4d5d7827ae"

// envFrom names a program to upgrade from, in place of the one that is built.
const envFrom = "SQLBRAIN_UPGRADE_FROM"

// errNoHistory: this is not a clone with the history of the previous version.
var errNoHistory = errors.New("the source of the previous version is missing")

// previous returns the path of the previous version's program, and skips t without the repository's history.
func previous(t testing.TB) string {
	t.Helper()
	harness.NeedsDatabase(t)
	if path := os.Getenv(envFrom); path != "" {
		return path
	}
	here, err := harness.Source(t.Context())
	require.NoError(t, err)
	commit, err := previousCommit(t.Context(), here, pinned)
	enginetest.Need(t, err, errNoHistory)
	t.Logf("the previous version is %s", commit)
	return harness.SqlbrainOf(t, "sqlbrain-previous", func() (string, error) {
		source := t.TempDir()
		archive := filepath.Join(source, "source.tar")
		if _, err := run(t.Context(), "git", "-C", here, "archive", "--output", archive, commit); err != nil {
			return "", err
		}
		_, err := run(t.Context(), "tar", "-x", "-f", archive, "-C", source)
		return source, err
	})
}

// previousCommit returns the newest release before the commit that is checked out in repository, or otherwise fallback.
// Its error wraps errNoHistory if that is not there.
func previousCommit(ctx context.Context, repository, fallback string) (string, error) {
	commit, err := run(ctx, "git", "-C", repository, "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "--exclude", "*-*", "HEAD^")
	if err != nil {
		commit = fallback
	}
	if _, err := run(ctx, "git", "-C", repository, "cat-file", "-e", commit+"^{commit}"); err != nil {
		return "", fmt.Errorf("%w: %s is not a clone with the history of commit %s (%w); fetch it with 'git fetch --unshallow --tags', "+
			"or name a program in %s", errNoHistory, repository, commit, err, envFrom)
	}
	return commit, nil
}

// run runs a program, and returns what it prints.
func run(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}

// TestThePreviousVersionIsTheNewestReleaseBefore, or the pinned commit where no release is.
func TestThePreviousVersionIsTheNewestReleaseBefore(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	dir := t.TempDir()
	git := func(args ...string) string {
		out, err := run(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e@example.com", "-c", "tag.gpgsign=false"}, args...)...)
		require.NoError(t, err)
		return out
	}
	choose := func() string {
		commit, err := previousCommit(t.Context(), dir, pinned)
		require.NoError(t, err)
		return commit
	}
	_, err := previousCommit(t.Context(), dir, pinned)
	require.ErrorIs(t, err, errNoHistory, "it is not a repository")
	git("init", "--quiet")
	commit := func() string {
		git("commit", "--quiet", "--allow-empty", "--no-gpg-sign", "--message", "m")
		return git("rev-parse", "HEAD")
	}
	first := commit()
	commit()
	_, err = previousCommit(t.Context(), dir, pinned)
	require.ErrorIs(t, err, errNoHistory, "it lacks the pinned commit")
	got, err := previousCommit(t.Context(), dir, first)
	require.NoError(t, err)
	require.Equal(t, first, got)
	git("tag", "v0.9.0")
	_, err = previousCommit(t.Context(), dir, pinned)
	require.ErrorIs(t, err, errNoHistory, "the release is this version")
	commit()
	require.Equal(t, "v0.9.0", choose())
	git("tag", "v0.10.0-rc.1")
	commit()
	require.Equal(t, "v0.9.0", choose(), "a candidate is not a release")
	git("tag", "v0.10.0")
	commit()
	require.Equal(t, "v0.10.0", choose())
}
