package mutants

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Mutant is one wrong program.
type Mutant struct {
	Name  string // what is wrong with it, as a sentence
	File  string // that is changed, below the top of the module
	Old   string // stands there once
	New   string // what stands there instead
	Run   string // the tests of internal/sim that have to fail, as a pattern
	Seeds int    // within so many seeds
}

// Overlay writes the changed file, and the description that go build -overlay
// takes, into a directory, and returns the description's path. It fails if the
// text does not stand in the file exactly once: then the program has changed, and
// the mutant has to follow.
func (m Mutant) Overlay(top, dir string) (string, error) {
	path := filepath.Join(top, filepath.FromSlash(m.File))
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(source), m.Old); n != 1 {
		return "", fmt.Errorf("%s: %q stands there %d times, want once", m.File, m.Old, n)
	}
	changed := filepath.Join(dir, filepath.Base(path))
	if err := os.WriteFile(changed, []byte(strings.Replace(string(source), m.Old, m.New, 1)), 0o644); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o644)
}
