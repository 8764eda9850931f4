package mutants

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Verdicts say what found each mutant: by the mutant's name, then by the judge's. "" is
// nothing. A judge that was not asked has no entry.
type Verdicts map[string]map[string]string

// The files, from the root of the repository.
const (
	VerdictsFile = "integration/mutants/verdicts.json"
	PageFile     = "docs/mutants.md"
)

// ReadVerdicts returns the recorded verdicts on mutants that are in All.
func ReadVerdicts(root string) (Verdicts, error) {
	recorded := make(Verdicts)
	raw, err := os.ReadFile(filepath.Join(root, VerdictsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return recorded, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &recorded)
	}
	current := make(Verdicts)
	for _, m := range All {
		if v := recorded[m.Name]; v != nil {
			current[m.Name] = v
		}
	}
	return current, err
}

// Note records that by found a mutant.
func (v Verdicts) Note(mutant, judge, by string) {
	if v[mutant] == nil {
		v[mutant] = make(map[string]string)
	}
	v[mutant][judge] = by
}

// Write writes the verdicts and the page.
func (v Verdicts) Write(root string) error {
	page, err := v.Page(root)
	if err != nil {
		return err
	}
	raw, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(root, VerdictsFile), append(raw, '\n'), 0o644),
		os.WriteFile(filepath.Join(root, PageFile), page, 0o644))
}
