// Package mutation plants mistakes in the product's source, one at a time, to find out which
// tests notice. It changes no file of the product: the go command gets the changed file with
// its flag -overlay.
package mutation

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Mutation is a mistake: the one place in the files of Package that reads From is made to read
// To. How From is broken into lines and indented does not matter. Test files are not changed.
type Mutation struct {
	Name    string
	Package string // a folder, from the root of the repository, with slashes
	From    string
	To      string
}

// place is a part of a file.
type place struct {
	path       string
	source     []byte
	start, end int
}

// File returns the path, from root and with slashes, of the file that the mutation changes in
// the repository at root. The error says why it cannot be planted.
func (m Mutation) File(root string) (string, error) {
	found, err := m.find(root)
	if err != nil {
		return "", err
	}
	return path.Join(m.Package, filepath.Base(found.path)), nil
}

// find returns the one place in the sources under root that reads From.
func (m Mutation) find(root string) (found place, err error) {
	var words []string
	for _, w := range strings.Fields(m.From) {
		words = append(words, regexp.QuoteMeta(w))
	}
	reads := regexp.MustCompile(strings.Join(words, `\s+`))
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(m.Package), "*.go"))
	if err != nil {
		return place{}, err
	}
	places := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return place{}, err
		}
		for _, at := range reads.FindAllIndex(source, -1) {
			places++
			found = place{file, source, at[0], at[1]}
		}
	}
	if places != 1 {
		return place{}, fmt.Errorf("%d places in %s read %q, want one: change the mutation with the code", places, m.Package, m.From)
	}
	return found, nil
}

// Plant writes the changed file of the repository at root into dir, and returns the path of
// the overlay that replaces the original by it, for the flag -overlay of go build, go vet and
// go test. Each mutation needs a separate dir.
func (m Mutation) Plant(root, dir string) (overlay string, err error) {
	at, err := m.find(root)
	if err != nil {
		return "", err
	}
	original, err := filepath.Abs(at.path)
	if err != nil {
		return "", err
	}
	wrong, err := filepath.Abs(filepath.Join(dir, filepath.Base(at.path)))
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(wrong, slices.Concat(at.source[:at.start], []byte(m.To), at.source[at.end:]), 0o644); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: wrong}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, replace, 0o644)
}

var failed = regexp.MustCompile(`--- FAIL: (\S+)`)

// Failure returns the name of the test that failed according to the output of go test: with
// its subtest, of several the one that is nested deepest, "" if none did.
func Failure(output []byte) (deepest string) {
	for _, m := range failed.FindAllSubmatch(output, -1) {
		if name := string(m[1]); deepest == "" || strings.Count(name, "/") >= strings.Count(deepest, "/") {
			deepest = name
		}
	}
	return deepest
}
