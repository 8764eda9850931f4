package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const repository = "../../../"

func readText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(repository + name)
	require.NoError(t, err)
	return string(text)
}

// releaser is what is looked at of .goreleaser.yaml.
type releaser struct {
	Builds []struct {
		Env, GOOS, GOARCH, Flags, LDFlags []string
		Main                              string
	}
	Archives  []struct{ Files []struct{ Src string } }
	Changelog map[string]any
	NFPMs     []struct {
		BinDir   string
		Contents []struct{ Src, Dst, Type string }
		Scripts  map[string]string
	}
}

func readReleaser(t *testing.T) (r releaser) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal([]byte(readText(t, ".goreleaser.yaml")), &r))
	require.Len(t, r.Builds, 1)
	require.Len(t, r.Archives, 1)
	require.Len(t, r.NFPMs, 1)
	return r
}

// Released programs, those of the Makefile and those of the image are built in the same way.
func TestReleaseIsBuiltAsTheMakefileBuilds(t *testing.T) {
	b := readReleaser(t).Builds[0]
	assert.Equal(t, []string{"CGO_ENABLED=0"}, b.Env)
	assert.Equal(t, []string{"-trimpath"}, b.Flags)
	assert.Equal(t, []string{"linux", "darwin"}, b.GOOS)
	assert.Equal(t, []string{"amd64", "arm64"}, b.GOARCH)
	require.Len(t, b.LDFlags, 1)
	const flags = "-s -w -X main.version="
	assert.True(t, strings.HasPrefix(b.LDFlags[0], flags), b.LDFlags[0])
	makefile, dockerfile := readText(t, "Makefile"), readText(t, "Dockerfile")
	assert.Contains(t, makefile, "\nLDFLAGS  := "+flags+"$(VERSION)\n")
	assert.Contains(t, makefile, "\n\tCGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) "+b.Main+"\n")
	assert.Regexp(t, `CGO_ENABLED=0 .*\\\n +go build -trimpath -ldflags "`+flags+`\$VERSION" -o /sqlbrain `+
		regexp.QuoteMeta(b.Main), dockerfile)
}

func TestReleaseHasItsFiles(t *testing.T) {
	r := readReleaser(t)
	p := r.NFPMs[0]
	var sources []string
	for _, f := range r.Archives[0].Files {
		sources = append(sources, f.Src)
	}
	installed := make(map[string]string)
	for _, c := range p.Contents {
		sources = append(sources, c.Src)
		installed[c.Dst] = c.Type
	}
	for _, script := range p.Scripts {
		sources = append(sources, script)
		out, err := exec.Command("/bin/sh", "-n", repository+script).CombinedOutput()
		assert.NoError(t, err, "%s", out)
	}
	require.Len(t, p.Scripts, 3)
	for _, s := range sources {
		found, err := filepath.Glob(repository + s)
		require.NoError(t, err)
		assert.NotEmpty(t, found, s)
	}
	// The unit finds what the package installs.
	unit := readText(t, "deploy/systemd/sqlbrain.service")
	assert.Contains(t, installed, "/usr/lib/systemd/system/sqlbrain.service")
	assert.Equal(t, "config|noreplace", installed["/etc/sqlbrain/sqlbrain.yaml"], "an upgrade keeps settings")
	assert.Contains(t, unit, "\nLoadCredential=sqlbrain.yaml:/etc/sqlbrain/sqlbrain.yaml\n")
	assert.Contains(t, unit, "\nExecStart=sqlbrain ", "wherever it is")
	assert.Equal(t, "/usr/bin", p.BinDir)
	password := regexp.MustCompile(`(?m)^LoadCredential=[a-z-]+:(.+)$`).FindStringSubmatch(unit)
	require.NotNil(t, password)
	install := readText(t, p.Scripts["postinstall"])
	assert.Contains(t, install, ">"+password[1]+")", "without the file the unit does not start")
	assert.NotRegexp(t, `systemctl .*start`, install, "an upgrade of packages would restart all members together")
}

// A version can be released only if CHANGELOG.md describes it.
func TestReleaseNotes(t *testing.T) {
	changelog := filepath.Join(t.TempDir(), "CHANGELOG.md")
	text := "# Changelog\n\n## Unreleased\n\n## v1.10.0 (2026-01-02)\n### Added\n- Ten.\n\n## v1.1.0\n- One.\n"
	require.NoError(t, os.WriteFile(changelog, []byte(text), 0o600))
	for version, want := range map[string]string{"v1.10.0": "### Added\n- Ten.\n", "v1.1.0": "- One.\n", "v1.1": "",
		"v2.0.0": "", "Unreleased": ""} {
		notes := exec.Command(repository+".ci/release-notes", version)
		notes.Env = append(os.Environ(), "CHANGELOG="+changelog)
		out, err := notes.Output()
		assert.Equal(t, want != "", err == nil, version)
		assert.Equal(t, want, string(out), version)
	}
	out, err := exec.Command(repository+".ci/release-notes", "Unreleased").Output()
	assert.NoError(t, err, "the change log's own form")
	assert.NotEmpty(t, out)
	assert.Contains(t, readText(t, ".github/workflows/release.yml"), "args: release --clean --release-notes=")
	assert.Empty(t, readReleaser(t).Changelog, "if it is disabled, goreleaser does not read --release-notes")
}

type workflow struct {
	Jobs map[string]struct {
		Permissions map[string]string
		Services    map[string]struct{ Image string }
		Strategy    struct {
			Matrix struct{ Include []map[string]string }
		}
		Steps []struct{ Run string }
	}
	Permissions map[string]string
}

// writePermissions are the jobs that may change something, and what.
var writePermissions = map[string][]string{
	"codeql/analyze":   {"security-events"},
	"release/binaries": {"contents", "id-token", "attestations"}, // the draft, its signature, its provenance
	"release/image":    {"packages", "id-token"},
}

// Workflows run what is there, and may do nothing that their job does not name.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob(repository + ".github/workflows/*.yml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	makefile, compose := readText(t, "Makefile"), readText(t, "docker-compose.yml")
	target := regexp.MustCompile(`(?m)\bmake ([a-z-]+)`)
	script := regexp.MustCompile(`(?m)(?:^|\s)(\.ci/[a-z-]+)`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var w workflow
		require.NoError(t, yaml.Unmarshal(text, &w))
		assert.Equal(t, map[string]string{"contents": "read"}, w.Permissions, file)
		require.NotEmpty(t, w.Jobs, file)
		for name, job := range w.Jobs {
			var images []string
			for _, s := range job.Services {
				images = append(images, s.Image)
			}
			for _, m := range job.Strategy.Matrix.Include {
				images = append(images, m["image"])
			}
			for _, image := range images {
				// The development databases have the same releases.
				if product, _, tagged := strings.Cut(image, ":"); tagged && product != "mariadb" && image != "mysql:8.4" {
					assert.Contains(t, compose, ":-"+image+"}", "%s: %s", file, name)
				}
			}
			for _, step := range job.Steps {
				for _, m := range target.FindAllStringSubmatch(step.Run, -1) {
					assert.Contains(t, makefile, "\n"+m[1]+":", "%s: %s", file, name)
				}
				for _, m := range script.FindAllStringSubmatch(step.Run, -1) {
					info, err := os.Stat(repository + m[1])
					if assert.NoError(t, err, "%s: %s", file, name) {
						assert.NotZero(t, info.Mode()&0o100, "%s cannot be run", m[1])
					}
				}
			}
			id := strings.TrimSuffix(filepath.Base(file), ".yml") + "/" + name
			var writes []string
			for permission, access := range job.Permissions {
				if access != "read" {
					assert.Equal(t, "write", access, "%s: %s", id, permission)
					writes = append(writes, permission)
				}
			}
			assert.ElementsMatch(t, writePermissions[id], writes, id)
		}
	}
}

// Actions are named by commit, because a tag can be moved to other code. The comment has the tag, which Dependabot
// updates together with the commit.
func TestActionsAreNamedByCommit(t *testing.T) {
	files, err := filepath.Glob(repository + ".github/workflows/*.yml")
	require.NoError(t, err)
	uses := regexp.MustCompile(`(?m)^.*\buses:(.*)$`)
	pinned := regexp.MustCompile(`^ ([\w.-]+/[\w.-]+)(?:/[\w.-]+)*@([0-9a-f]{40} # v\d+\.\d+\.\d+)$`)
	commits := make(map[string]string)
	for _, file := range files {
		for _, line := range uses.FindAllStringSubmatch(readText(t, strings.TrimPrefix(file, repository)), -1) {
			found := pinned.FindStringSubmatch(line[1])
			if !assert.NotNil(t, found, "%s: %s: must be owner/name@commit # vX.Y.Z", file, line[0]) {
				continue
			}
			if first := commits[found[1]]; first != "" {
				assert.Equal(t, first, found[2], "%s: %s", file, found[1])
			}
			commits[found[1]] = found[2]
		}
	}
	assert.NotEmpty(t, commits)
}
