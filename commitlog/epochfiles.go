package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
)

// Names at the store's root.
const (
	epochFileName   = "epochFileCheckpoint"  // RocketMQ's (EpochFileCache)
	epochBackupName = epochFileName + ".bak" // its text before the last change (MixAll.string2File)
	epochNotesName  = "haengine.epochs"      // ours: the same list, with the ids
	epochNotesFirst = "haengine-epochs 1"    // its first line
)

// encodeEpochFile gives RocketMQ's text for a list that is not empty
// (CheckpointFile.write): the number of entries, a checksum of the lines that
// follow, and a line for each entry.
func encodeEpochFile(list []Epoch) []byte {
	var rows []byte
	for _, e := range list {
		rows = fmt.Appendf(rows, "%d-%d\n", e.Number, e.Start)
	}
	// UtilAll.crc32, which is that of bodies, too.
	return fmt.Appendf(nil, "%d\n%d\n%s", len(list), bodyCRC(rows), rows)
}

// decodeEpochFile reads RocketMQ's text; ids are not known. A checksum of 0
// holds for anything, as in CheckpointFile.read.
func decodeEpochFile(data []byte) ([]Epoch, error) {
	head, rest, _ := strings.Cut(string(data), "\n")
	count, err := strconv.Atoi(head)
	if err != nil {
		return nil, fmt.Errorf("its first line %.20q is not the number of entries", head)
	}
	head, rows, _ := strings.Cut(rest, "\n")
	if !strings.HasSuffix(rows, "\n") {
		rows += "\n" // RocketMQ puts the lines together again, too
	}
	sum, err := strconv.ParseUint(head, 10, 31)
	if err != nil {
		return nil, fmt.Errorf("its second line %.20q is no checksum", head)
	}
	if sum != 0 && uint32(sum) != bodyCRC([]byte(rows)) {
		return nil, errors.New("its checksum does not hold")
	}
	var list []Epoch
	for row := range strings.Lines(rows) {
		number, start, _ := strings.Cut(strings.TrimSuffix(row, "\n"), "-")
		e, err := parseEpoch(number, start)
		if err != nil {
			return nil, fmt.Errorf("line %.40q: %w", row, err)
		}
		list = append(list, e)
	}
	if len(list) != count || count == 0 {
		return nil, fmt.Errorf("it has %d entries, and says %d", len(list), count)
	}
	if err := checkEpochs(list); err != nil {
		return nil, err
	}
	return list, nil
}

func parseEpoch(number, start string) (Epoch, error) {
	n, err := strconv.ParseInt(number, 10, 32)
	at, e := strconv.ParseInt(start, 10, 64)
	return Epoch{Number: int32(n), Start: at}, errors.Join(err, e)
}

// checkEpochs refuses a list in which numbers and starts do not both grow.
func checkEpochs(list []Epoch) error {
	last := Epoch{Number: -1, Start: -1}
	for _, e := range list {
		if e.Number <= last.Number || e.Start <= last.Start {
			return fmt.Errorf("epoch %d from offset %d does not follow epoch %d from offset %d", e.Number, e.Start, last.Number, last.Start)
		}
		last = e
	}
	return nil
}

// Our own file has the list with its ids. It is written before RocketMQ's, and
// counts unless RocketMQ has written to the store since, which the hint tells
// (hint.go): a crash between the two is healed from ours, and what a broker in
// controller mode did is taken from its file.
//
// The file is text as the hint is: a name and values a line, unknown names
// skipped, and a checksum. It is without an epoch only while the files are being
// removed.
func encodeEpochNotes(list []Epoch) []byte {
	text := []byte(epochNotesFirst + "\n")
	for _, e := range list {
		text = fmt.Appendf(text, "epoch %d %016x %d\n", e.Number, e.ID, e.Start)
	}
	return sealText(text)
}

// decodeEpochNotes reads our text. A list without an epoch is not nil.
func decodeEpochNotes(data []byte) ([]Epoch, error) {
	lines, err := openText(data, epochNotesFirst)
	if err != nil {
		return nil, err
	}
	list := []Epoch{}
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 4 || f[0] != "epoch" {
			continue
		}
		e, err := parseEpoch(f[1], f[3])
		if err == nil {
			e.ID, err = strconv.ParseUint(f[2], 16, 64)
		}
		if err != nil {
			return nil, fmt.Errorf("line %q: %w", lines.Text(), err)
		}
		list = append(list, e)
	}
	if err := errors.Join(lines.Err(), checkEpochs(list)); err != nil {
		return nil, err
	}
	return list, nil
}

// foundEpochs is what the files of a store say of its epochs; nil: a file is
// not there or cannot be read.
type foundEpochs struct {
	notes   []Epoch // ours
	list    []Epoch // RocketMQ's
	backup  []Epoch // RocketMQ's before, looked at if there is no list
	bad     []error // why files cannot be read, with their names
	oursBad bool    // ours is one of them
}

func findEpochs(disk Disk, root string) *foundEpochs {
	f := &foundEpochs{}
	read := func(name string, decode func([]byte) ([]Epoch, error)) []Epoch {
		path := filepath.Join(root, name)
		text, err := disk.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		var list []Epoch
		if err == nil {
			list, err = decode(text)
		}
		if err != nil {
			f.bad = append(f.bad, fmt.Errorf("%s: %w", path, err))
			return nil
		}
		return list
	}
	f.notes = read(epochNotesName, decodeEpochNotes)
	f.oursBad = len(f.bad) > 0
	if f.list = read(epochFileName, decodeEpochFile); f.list == nil {
		f.backup = read(epochBackupName, decodeEpochFile)
	}
	return f
}

// judge decides which list counts; alone says that nobody but us has written to
// the store since. same is true if the files can stay as they are. The cases, in
// order:
//
//  1. There is no file of ours, or it cannot be read: RocketMQ's list, or else
//     its backup's. Nobody knows the ids.
//  2. Both files have one list.
//  3. Nobody but us has written since: ours. A crash came between the two, or
//     RocketMQ's file was lost.
//  4. RocketMQ has written since: its list, with the ids of the epochs that ours
//     has, too. A backup counts if it goes on where ours ends: the broker died
//     while it wrote its file.
//  5. Ours.
func (f *foundEpochs) judge(alone bool) (list []Epoch, same bool) {
	switch {
	case f.notes == nil && f.list != nil:
		return f.list, !f.oursBad
	case f.notes == nil:
		return f.backup, !f.oursBad || f.backup == nil
	case f.list != nil && sameTerms(f.list, f.notes):
		return f.notes, true
	case alone:
		return f.notes, false
	case f.list != nil:
		return withIDs(f.list, f.notes), false
	case lastNumber(f.backup) > lastNumber(f.notes) && len(f.notes) > 0:
		return withIDs(f.backup, f.notes), false
	}
	return f.notes, false
}

// lastNumber is the number of a list's last epoch, or 0.
func lastNumber(list []Epoch) int32 {
	if len(list) == 0 {
		return 0
	}
	return list[len(list)-1].Number
}

// sameTerms compares two lists but for their ids.
func sameTerms(a, b []Epoch) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Number != b[i].Number || a[i].Start != b[i].Start {
			return false
		}
	}
	return true
}

// withIDs gives the epochs of a list the ids that they have in another.
func withIDs(list, known []Epoch) []Epoch {
	ids := make(map[Epoch]uint64, len(known))
	for _, e := range known {
		ids[Epoch{Number: e.Number, Start: e.Start}] = e.ID
	}
	for i := range list {
		list[i].ID = ids[list[i]]
	}
	return list
}

// writeEpochNotes replaces our file, durably, unless it says the same already.
// After an error changed says whether the new text is there, durable or not.
func writeEpochNotes(disk Disk, root string, list []Epoch) (changed bool, err error) {
	path, text := filepath.Join(root, epochNotesName), encodeEpochNotes(list)
	holds := func() bool {
		b, err := disk.ReadFile(path)
		return err == nil && bytes.Equal(b, text)
	}
	if holds() {
		// A process that was killed may have left its name to the next power cut,
		// which could then take ours and leave RocketMQ's.
		return false, disk.SyncDir(root)
	}
	if err := disk.WriteFileAtomic(path, text); err != nil {
		return holds(), fmt.Errorf("write epochs: %w", err)
	}
	return true, nil
}

// replaceEpochFile makes RocketMQ's file say a list, after ours, and keeps its
// text as the backup if it can be read. RocketMQ never writes a list without an
// epoch, and would believe the old one: there the files have to go, ours last.
func replaceEpochFile(disk Disk, root string, list []Epoch) error {
	if len(list) == 0 {
		if err := removeDurably(disk, root, epochBackupName, epochFileName); err != nil {
			return err
		}
		return removeDurably(disk, root, epochNotesName)
	}
	path := filepath.Join(root, epochFileName)
	before, err := disk.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read RocketMQ's epochs: %w", err)
	}
	if _, err := decodeEpochFile(before); err == nil {
		if err := disk.WriteFileAtomic(filepath.Join(root, epochBackupName), before); err != nil {
			return fmt.Errorf("back up RocketMQ's epochs: %w", err)
		}
	}
	if err := disk.WriteFileAtomic(path, encodeEpochFile(list)); err != nil {
		return fmt.Errorf("write RocketMQ's epochs: %w", err)
	}
	return nil
}

// removeDurably removes files of a directory, if they are there.
func removeDurably(disk Disk, dir string, names ...string) error {
	for _, name := range names {
		if err := disk.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return disk.SyncDir(dir)
}
