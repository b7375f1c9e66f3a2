package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const top = "../.."

func TestTreeKeepsTheRules(t *testing.T) {
	findings, err := Check(top, Project())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		t.Error(f)
	}
}

func TestProgramsInReadmeCompile(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(top, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	programs := ProgramsIn(string(page))
	if len(programs) == 0 {
		t.Fatal("the README shows no program that embeds the engine")
	}
	for _, program := range programs {
		file := filepath.Join(t.TempDir(), "main.go")
		if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
			t.Fatal(err)
		}
		vet := exec.Command("go", "vet", file)
		vet.Dir = top
		if out, err := vet.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s\nof the program:\n%s", err, out, program)
		}
	}
}

// The pages and the command name the same flags.
func TestPagesNameTheFlagsThereAre(t *testing.T) {
	words, err := WordsOf(filepath.Join(top, "cmd", "haengine"))
	if err != nil {
		t.Fatal(err)
	}
	if len(words.Settings) == 0 {
		t.Fatal("no settings found in the command's source")
	}
	peers, err := WordsOf(filepath.Join(top, "bench", "peers"))
	if err != nil {
		t.Fatal(err)
	}
	tuning, err := FlagsIn(filepath.Join(top, "docs", "tuning.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range words.Settings {
		if tuning[name] == 0 {
			t.Errorf("docs/tuning.md does not name --%s", name)
		}
	}
	pages, err := filepath.Glob(filepath.Join(top, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, filepath.Join(top, "README.md")) {
		flags, err := FlagsIn(page)
		if err != nil {
			t.Fatal(err)
		}
		for name, line := range flags {
			if !words.Literals[name] && !peers.Literals[name] {
				t.Errorf("%s:%d: --%s is no flag of haengine or of bench/peers", page, line, name)
			}
		}
	}
}
