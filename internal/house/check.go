package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Finding is one place where the tree breaks a rule.
type Finding struct {
	File string // relative to the top, with slashes
	Line int    // from 1; 0: the whole file or directory
	Rule string // "import", "call", "goroutine", "lines", "comment", "directory", "room", "link"
	Text string // what stands there and what is wanted
}

func (f Finding) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s: %s", f.File, f.Rule, f.Text)
	}
	return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Rule, f.Text)
}

// Check reads the tree at root and returns what breaks the rules, ordered by
// file and line. The error is about reading: a source file that does not parse
// is one. It writes nothing.
func Check(root string, rules Rules) ([]Finding, error) {
	c := checker{root: root, rules: rules, documented: map[string]bool{}}
	ignored, err := ignoredDirectories(root)
	if err != nil {
		return nil, err
	}
	if err := c.topDirectories(ignored); err != nil {
		return nil, err
	}
	if err := c.walk(ignored); err != nil {
		return nil, err
	}
	for dir, ok := range c.documented {
		if !ok {
			c.report(Finding{File: dir, Rule: "comment", Text: "no file of the package says what it is for"})
		}
	}
	slices.SortFunc(c.findings, func(a, b Finding) int {
		if n := strings.Compare(a.File, b.File); n != 0 {
			return n
		}
		return a.Line - b.Line
	})
	return c.findings, nil
}

type checker struct {
	root       string
	rules      Rules
	documented map[string]bool // package directory: some file has a package comment
	findings   []Finding
}

func (c *checker) report(f Finding) { c.findings = append(c.findings, f) }

// topDirectories compares the directories at the top with the list.
func (c *checker) topDirectories(ignored []string) error {
	entries, err := os.ReadDir(c.root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() || e.Name() == ".git" || slices.Contains(ignored, e.Name()) {
			continue
		}
		if !slices.Contains(c.rules.Directories, e.Name()) {
			c.report(Finding{File: e.Name(), Rule: "directory", Text: "not on the list of directories at the top"})
		}
	}
	return nil
}

func (c *checker) walk(ignored []string) error {
	return filepath.WalkDir(c.root, func(full string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(c.root, full)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch {
		case d.IsDir() && rel != "." && (skipped(d.Name()) || slices.Contains(ignored, rel)):
			return filepath.SkipDir
		case d.IsDir():
			return nil
		case strings.HasSuffix(rel, ".go"):
			return c.goFile(full, rel)
		case strings.HasSuffix(rel, ".md"):
			return c.markdown(full, rel)
		}
		return nil
	})
}

// skipped tells whether a directory holds no source of ours: the go command's
// own rule for names that it does not look into.
func skipped(name string) bool {
	return name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}

func (c *checker) goFile(full, rel string) error {
	source, err := os.ReadFile(full)
	if err != nil {
		return err
	}
	if lines := bytes.Count(source, []byte("\n")); lines > c.rules.LinesMax {
		c.report(Finding{File: rel, Rule: "lines",
			Text: fmt.Sprintf("%d lines, at most %d: it holds two nouns", lines, c.rules.LinesMax)})
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, full, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	dir := path.Dir(rel)
	c.documented[dir] = c.documented[dir] || file.Doc != nil
	i := slices.IndexFunc(c.rules.Rooms, func(r Room) bool { return r.Package == dir })
	if i < 0 {
		c.report(Finding{File: rel, Rule: "room", Text: "package " + dir + " has no room in the rules"})
		return nil
	}
	s := goSource{checker: c, set: set, file: file, rel: rel, room: c.rules.Rooms[i],
		test: strings.HasSuffix(rel, "_test.go"), names: map[string]string{}}
	s.imports()
	s.body()
	return nil
}

// goSource is one Go file being checked.
type goSource struct {
	*checker
	set   *token.FileSet
	file  *ast.File
	rel   string
	room  Room
	test  bool
	names map[string]string // local name of an import: its path
}

func (s *goSource) line(at token.Pos) int { return s.set.Position(at).Line }

// imports checks the import block and remembers the local names.
func (s *goSource) imports() {
	for _, spec := range s.file.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has taken it, so it is a string
		}
		name := path.Base(target)
		if isVersion(name) {
			name = path.Base(path.Dir(target))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		s.names[name] = target
		if !s.mayImport(target) {
			s.report(Finding{File: s.rel, Line: s.line(spec.Pos()), Rule: "import",
				Text: s.room.Package + " must not know " + target})
		}
		for _, only := range s.rules.Only {
			if only.Import == target && !only.free(s.rel) {
				s.report(Finding{File: s.rel, Line: s.line(spec.Pos()), Rule: "import",
					Text: target + " is for " + strings.Join(only.Files, ", ") + ": " + only.Why})
			}
		}
	}
}

func (s *goSource) mayImport(target string) bool {
	if first, _, _ := strings.Cut(target, "/"); !strings.Contains(first, ".") {
		return s.test || !slices.Contains(s.room.Unknown, target)
	}
	if s.test {
		// A package's external test imports the package itself.
		if target == Module+"/"+s.room.Package || covered(target, s.rules.TestImports) {
			return true
		}
	}
	return covered(target, s.room.Imports)
}

// covered tells whether a pattern of the list is the path, or stands above it
// with "/...".
func covered(target string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		above, tree := strings.CutSuffix(pattern, "/...")
		return target == above || tree && strings.HasPrefix(target, above+"/")
	})
}

// isVersion tells whether the last part of an import path is a major version:
// "v2" in "gnet/v2".
func isVersion(part string) bool {
	digits, ok := strings.CutPrefix(part, "v")
	_, err := strconv.Atoi(digits)
	return ok && err == nil
}

// body checks what the file uses. Tests are free to do it: they damage files
// and measure time.
func (s *goSource) body() {
	if s.test {
		return
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			if s.room.NoGoroutines {
				s.report(Finding{File: s.rel, Line: s.line(n.Pos()), Rule: "goroutine",
					Text: s.room.Package + " starts no goroutine of its own"})
			}
		case *ast.SelectorExpr:
			if base, ok := n.X.(*ast.Ident); ok {
				if target, ok := s.names[base.Name]; ok {
					s.used(target+"."+n.Sel.Name, n.Pos())
				}
			}
		}
		return true
	})
}

func (s *goSource) used(function string, at token.Pos) {
	if slices.Contains(s.room.Uncalled, function) {
		s.report(Finding{File: s.rel, Line: s.line(at), Rule: "call", Text: s.room.Package + " must not use " + function})
	}
	for _, only := range s.rules.Only {
		if len(only.Rooms) > 0 && !slices.Contains(only.Rooms, s.room.Package) {
			continue
		}
		if slices.Contains(only.Calls, function) && !only.free(s.rel) {
			s.report(Finding{File: s.rel, Line: s.line(at), Rule: "call",
				Text: function + " is for " + strings.Join(only.Files, ", ") + ": " + only.Why})
		}
	}
}

// ignoredDirectories returns the directories that .gitignore names as "/name/".
func ignoredDirectories(root string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, ".gitignore"))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutSuffix(line, "/"); ok && strings.HasPrefix(name, "/") {
			names = append(names, name[1:])
		}
	}
	return names, nil
}
