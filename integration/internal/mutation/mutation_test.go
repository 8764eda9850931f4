package mutation

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const source = "package p\n\nfunc f(n int) bool {\n\tif n > 0 &&\n\t\tn < 9 {\n\t\treturn true\n\t}\n\treturn n == 0\n}\n"

func repository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"p.go": source, "p_test.go": source} {
		if err := os.MkdirAll(filepath.Join(root, "a", "p"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "a", "p", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestPlantChangesOnePlaceInACopy(t *testing.T) {
	root := repository(t)
	m := Mutation{Package: "a/p", From: "n > 0 && n < 9 {", To: "n > 0 {"}
	overlay, err := m.Plant(root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(overlay)
	if err != nil {
		t.Fatal(err)
	}
	var replaced struct{ Replace map[string]string }
	if err := json.Unmarshal(raw, &replaced); err != nil {
		t.Fatal(err)
	}
	wrong, err := os.ReadFile(replaced.Replace[filepath.Join(root, "a", "p", "p.go")])
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(source, "n > 0 &&\n\t\tn < 9 {", "n > 0 {", 1); string(wrong) != want {
		t.Errorf("planted:\n%s\nwant:\n%s", wrong, want)
	}
	if left, err := os.ReadFile(filepath.Join(root, "a", "p", "p.go")); err != nil || string(left) != source {
		t.Errorf("the original was changed: %s %v", left, err)
	}
}

func TestMutationNeedsExactlyOnePlace(t *testing.T) {
	root := repository(t)
	for from, ok := range map[string]bool{"return n == 0": true, "return": false, "nothing": false} {
		file, err := Mutation{Package: "a/p", From: from}.File(root)
		if ok != (err == nil) || ok && file != "a/p/p.go" {
			t.Errorf("%q: %q, %v", from, file, err)
		}
	}
}

func TestFailureNamesTheDeepestTest(t *testing.T) {
	for output, want := range map[string]string{
		"ok  \tp\t0.1s\n": "",
		"--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/b (0.0s)\n        x_test.go:1: wrong\nFAIL\n": "TestA/b",
		"--- FAIL: TestA (0.1s)\nFAIL\tp\t0.1s\n":                                                  "TestA",
	} {
		if got := Failure([]byte(output)); got != want {
			t.Errorf("%q: %q, want %q", output, got, want)
		}
	}
}
