package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// asideName is our file at the store's root while a log is being set aside. It
// names the directory, below cut/, that all of it goes into.
const (
	asideName   = "haengine.aside"
	asideHeader = "haengine-aside 1"
)

// ErrHalfAside means that setting a log aside was cut off, and that an opening
// for writing will finish it.
var ErrHalfAside = errors.New("this store's log is being set aside")

// asideNames are what belongs to a log at the store's root: the log, what is
// built from it, and what is said of it. Who the store is stays, and so does what
// a broker knows beside its log.
func asideNames() []string {
	return []string{
		segmentsDirectory, queuesDirectory, "index", hintName, epochNotesName, epochFileName, epochBackupName, checkpointName, abortName,
	}
}

// AsidePlan is what SetAside would move.
type AsidePlan struct {
	Names []string // at the store's root
	Files int      // in them
	Bytes int64    // of files, those not written yet included
}

// PlanAside says what [SetAside] would move. It works for logs that cannot be
// opened, too.
func PlanAside(o Options) (AsidePlan, error) {
	l, err := newLog(o)
	if err != nil {
		return AsidePlan{}, err
	}
	if err := l.refuseHalfAside(); err != nil {
		return AsidePlan{}, err
	}
	var p AsidePlan
	var count func(path string, e FileInfo) error
	count = func(path string, e FileInfo) error {
		if !e.Mode.IsDir() {
			p.Files++
			p.Bytes += e.Size
			return nil
		}
		below, err := l.disk.ReadDir(path)
		for _, b := range below {
			err = errors.Join(err, count(filepath.Join(path, b.Name), b))
		}
		return err
	}
	found, err := l.toSetAside()
	if err != nil {
		return p, err
	}
	for _, e := range found {
		p.Names = append(p.Names, e.Name)
		if err := count(filepath.Join(l.root, e.Name), e); err != nil {
			return p, err
		}
	}
	return p, nil
}

// toSetAside lists what there is of a log. A link is refused: what it leads to is
// on another disk, most likely, and should not go on living under another name.
func (l *Log) toSetAside() ([]FileInfo, error) {
	entries, err := l.disk.ReadDir(l.root)
	if err != nil {
		return nil, fmt.Errorf("read store %s: %w", l.root, err)
	}
	byName := map[string]FileInfo{}
	for _, e := range entries {
		byName[e.Name] = e
	}
	var found []FileInfo
	for _, name := range asideNames() {
		e, ok := byName[name]
		if ok && e.Mode&fs.ModeSymlink != 0 {
			return nil, fmt.Errorf("%s is a link: stop the node, move what it leads to aside by hand, and start it again", filepath.Join(l.root, name))
		}
		if ok {
			found = append(found, e)
		}
	}
	return found, nil
}

// SetAside moves the log of a store that nobody has open, with its queues and
// all that is said of it, into a directory below cut/, whose path is returned.
// That is a store directory which the reading functions open. The store itself
// is empty afterwards and is who it was. A crash leaves all as it was, or an
// opening finishes the move. [ErrLocked]: somebody has the store open.
func SetAside(o Options) (path string, err error) {
	err = underLock(o, func(l *Log) error {
		if done, half, err := l.finishAside(); err != nil || half {
			path = done
			return err
		}
		if _, err := l.toSetAside(); err != nil {
			return err
		}
		path, err = l.cutPathOf("log-" + l.opts.Now().UTC().Format("20060102T150405.000"))
		if err != nil {
			return err
		}
		text := sealText([]byte(asideHeader + "\ninto " + filepath.Base(path) + "\n"))
		if err := l.disk.WriteFileAtomic(filepath.Join(l.root, asideName), text); err != nil {
			return fmt.Errorf("note that the log is set aside: %w", err)
		}
		if _, _, err = l.finishAside(); err != nil {
			return errors.Join(err, l.unmarkAside(path))
		}
		return nil
	})
	return path, err
}

// unmarkAside takes the note of a move back that has not moved anything, so that
// the store opens as it did.
func (l *Log) unmarkAside(into string) error {
	moved, err := l.disk.ReadDir(into)
	if errors.Is(err, fs.ErrNotExist) {
		return removeDurably(l.disk, l.root, asideName)
	}
	if err != nil || len(moved) > 0 {
		return err
	}
	return errors.Join(removeDurably(l.disk, l.root, asideName), l.disk.Remove(into))
}

// halfAside reads the note of a log that is being set aside; into is empty
// without one.
func (l *Log) halfAside() (into string, err error) {
	note := filepath.Join(l.root, asideName)
	text, err := l.disk.ReadFile(note)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	lines, err := openText(text, asideHeader)
	if err != nil {
		return "", fmt.Errorf("%s: %w", note, err)
	}
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "into "); ok && name == filepath.Base(name) {
			into = filepath.Join(l.root, cutDirectory, name)
		}
	}
	if into == "" {
		return "", fmt.Errorf("%s: it does not name a directory", note)
	}
	return into, lines.Err()
}

// refuseHalfAside is for those who only read.
func (l *Log) refuseHalfAside() error {
	into, err := l.halfAside()
	if err == nil && into != "" {
		err = fmt.Errorf("%w: some of %s is in %s; the next start of a node, or the next haengine reseed, moves the rest", ErrHalfAside, l.root, into)
	}
	return err
}

// finishAside moves what is left of a log that is being set aside, if one is.
// The store's lock is held.
func (l *Log) finishAside() (into string, half bool, err error) {
	if into, err = l.halfAside(); err != nil || into == "" {
		return "", false, err
	}
	if err := l.disk.MkdirAll(into); err != nil {
		return into, true, err
	}
	found, err := l.toSetAside()
	if err != nil {
		return into, true, err
	}
	for _, e := range found {
		if err := l.disk.Rename(filepath.Join(l.root, e.Name), filepath.Join(into, e.Name)); err != nil {
			return into, true, fmt.Errorf("set %s aside: %w; if it is a file system of its own, move what is in it by hand", e.Name, err)
		}
	}
	// The new names first: a crash between leaves two, not none. The note last.
	if err := errors.Join(l.disk.SyncDir(into), l.disk.SyncDir(l.root)); err != nil {
		return into, true, err
	}
	return into, true, removeDurably(l.disk, l.root, asideName)
}
