package commitlog

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// nameDigits is the length of a segment's name.
const nameDigits = 20

// segmentName is the name of the file that begins at offset base
// (RocketMQ UtilAll.offset2FileName).
func segmentName(base int64) string { return fmt.Sprintf("%0*d", nameDigits, base) }

// parseSegmentName reads a name of 20 digits. fits is false when the number is
// beyond any offset.
func parseSegmentName(name string) (base int64, ok, fits bool) {
	if len(name) != nameDigits {
		return 0, false, false
	}
	fits = true
	for i := range len(name) {
		d := int64(name[i]) - '0'
		if d < 0 || d > 9 {
			return 0, false, false
		}
		if base > (1<<63-1-d)/10 {
			fits = false
			continue
		}
		base = base*10 + d
	}
	return base, true, fits
}

// segment is one file of the log, [base, base+size), opened and mapped when it
// is first used. It is unmapped by the last of its counted readers after the
// log has let go of it (RocketMQ MappedFile and ReferenceResource).
type segment struct {
	disk Disk
	path string
	base int64
	size int64

	refs    atomic.Int64             // the log's one, and one for each reader; never rises from 0
	opened  atomic.Pointer[openFile] // nil until first used; set under opening
	opening sync.Mutex

	lastTimestamp atomic.Int64 // store time of its last record in ms; 0: not known (retain.go)
}

// openFile is a segment's descriptor and mapping. Valid while the segment is
// referenced.
type openFile struct {
	mapping
	file     File
	writable bool
}

func newSegment(disk Disk, dir string, base, size int64) *segment {
	s := &segment{disk: disk, path: filepath.Join(dir, segmentName(base)), base: base, size: size}
	s.refs.Store(1)
	return s
}

// checkSize tells whether the file still has its size. Bytes written to a
// mapping behind the end of a file that somebody cut are in memory only, and an
// fdatasync says nothing of them.
func (s *segment) checkSize(f File) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	if size < s.size {
		return &CorruptError{Path: s.path, Offset: s.base + size, Kind: KindFault,
			Detail: fmt.Sprintf("the file was cut to %d bytes, a segment has %d", size, s.size)}
	}
	return nil
}

func (s *segment) end() int64 { return s.base + s.size }

// acquire counts a reader; false when the segment is gone from the log.
func (s *segment) acquire() bool {
	for {
		n := s.refs.Load()
		if n <= 0 {
			return false
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release ends what acquire began. The last one unmaps.
func (s *segment) release() {
	if s.refs.Add(-1) != 0 {
		return
	}
	if f := s.opened.Load(); f != nil {
		// Nothing can be done about a failure, and nothing is lost by it.
		_ = f.file.Unmap()
		_ = f.file.Close()
	}
}

// use returns the open file of a segment that the caller holds a reference of,
// opening it for reading if need be.
func (s *segment) use() (*openFile, error) {
	if f := s.opened.Load(); f != nil {
		return f, nil
	}
	return s.open(false)
}

// open opens and maps the file. A file that is not of the segment's size is
// not mapped: its pages would fault.
func (s *segment) open(write bool) (*openFile, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if f := s.opened.Load(); f != nil && (f.writable || !write) {
		return f, nil
	} else if f != nil {
		return nil, fmt.Errorf("open segment %s for writing: it is open for reading", s.path)
	}
	file, err := s.disk.Open(s.path, write)
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	size, err := file.Size()
	if err == nil && size < s.size {
		err = &CorruptError{
			Path: s.path, Offset: s.base + size, Kind: KindFault,
			Detail: fmt.Sprintf("the file has %d bytes, a segment has %d", size, s.size),
		}
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return s.adopt(file, write)
}

// adopt maps a file that was just opened or created. On failure it is closed.
func (s *segment) adopt(file File, write bool) (*openFile, error) {
	data, err := file.Map(s.size, write)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("map segment: %w", err)
	}
	f := &openFile{mapping: mapping{path: s.path, base: s.base, data: data}, file: file, writable: write}
	s.opened.Store(f)
	return f, nil
}

// segments is the log's files in order, without gaps. A value is never edited:
// a change makes a new one (copy-on-write behind Log.list).
type segments []*segment

// find returns the segment that holds the byte at offset, or nil.
func (l segments) find(offset int64) *segment {
	if len(l) == 0 || offset < l[0].base {
		return nil
	}
	i := (offset - l[0].base) / l[0].size
	if i >= int64(len(l)) {
		return nil
	}
	return l[i]
}

func (l segments) last() *segment {
	if len(l) == 0 {
		return nil
	}
	return l[len(l)-1]
}
