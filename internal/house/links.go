package house

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// A link of a Markdown file: [text](target) or an HTML src/srcset.
var linkPattern = regexp.MustCompile(`\]\(([^()\s]+)\)|(?:src|srcset|href)="([^"]+)"`)

// markdown checks that what a page links to inside the tree is there.
func (c *checker) markdown(full, rel string) error {
	text, err := os.ReadFile(full)
	if err != nil {
		return err
	}
	number := 0
	fenced := false
	for line := range strings.Lines(string(text)) {
		number++
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		if fenced {
			continue
		}
		for _, match := range linkPattern.FindAllStringSubmatch(line, -1) {
			target, _, _ := strings.Cut(match[1]+match[2], "#")
			if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			target = path.Join(path.Dir(rel), target)
			if _, err := os.Stat(filepath.Join(c.root, filepath.FromSlash(target))); err != nil {
				c.report(Finding{File: rel, Line: number, Rule: "link", Text: "nothing stands at " + target})
			}
		}
	}
	return nil
}

// ProgramsIn returns the Go programs that a Markdown page shows: its fenced
// blocks that begin with "package main".
func ProgramsIn(page string) []string {
	var programs []string
	for rest := page; ; {
		_, after, ok := strings.Cut(rest, "```go\n")
		if !ok {
			return programs
		}
		block, after, ok := strings.Cut(after, "```")
		if !ok {
			return programs
		}
		if strings.HasPrefix(block, "package main") {
			programs = append(programs, block)
		}
		rest = after
	}
}
