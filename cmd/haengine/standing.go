package main

import (
	"os"
	"path/filepath"
	"strconv"

	"github.com/haengine/haengine/commitlog"
)

// standing is the beginning of a log as its directory has it now. A log that is
// open for reading only keeps the beginning it was opened with, while the node
// beside it removes segments.
type standing struct {
	dir string
	min int64 // only rises
}

func newStanding(l *commitlog.Log) *standing {
	return &standing{dir: filepath.Join(l.Info().Dir, "commitlog"), min: l.MinOffset()}
}

// gone tells whether an offset lies before all that stands on disk now.
func (s *standing) gone(offset int64) bool {
	if offset >= s.min {
		s.look()
	}
	return offset < s.min
}

// look reads the directory, whose entries come sorted by name. What cannot be
// read is no news.
func (s *standing) look() {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		base, err := strconv.ParseInt(e.Name(), 10, 64)
		if err == nil && len(e.Name()) == segmentNameDigits {
			s.min = max(s.min, base)
			return
		}
	}
}

// segmentNameDigits is the length of a segment's name, its first offset.
const segmentNameDigits = 20
