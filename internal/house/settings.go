package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Words are the string literals of a directory's Go files, tests left out, and
// where each of the calls named add("name", …) defines a setting.
type Words struct {
	Literals map[string]bool
	Settings []string
}

// WordsOf reads the source in dir.
func WordsOf(dir string) (Words, error) {
	words := Words{Literals: map[string]bool{}}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return words, err
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return words, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil {
					words.Literals[text] = true
				}
			case *ast.CallExpr:
				if name, ok := settingOf(n); ok {
					words.Settings = append(words.Settings, name)
				}
			}
			return true
		})
	}
	return words, nil
}

// settingOf returns the name of the setting that a call defines.
func settingOf(call *ast.CallExpr) (string, bool) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || method.Sel.Name != "add" || len(call.Args) != 5 {
		return "", false
	}
	literal, ok := call.Args[0].(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	name, err := strconv.Unquote(literal.Value)
	return name, err == nil
}

var flagPattern = regexp.MustCompile(`(?:^|[\s` + "`" + `(|])--([a-z][a-z0-9-]*)`)

// FlagsIn returns the long flags that a page mentions, with the first line of
// each.
func FlagsIn(path string) (map[string]int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	flags := map[string]int{}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		for _, match := range flagPattern.FindAllStringSubmatch(line, -1) {
			if flags[match[1]] == 0 {
				flags[match[1]] = number
			}
		}
	}
	return flags, nil
}
