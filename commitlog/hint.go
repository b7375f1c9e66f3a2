package commitlog

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// hintName is our own file at the store's root. Never in commitlog/.
const hintName = "haengine.flushed"

// hintTailBytes is how much of the log before the flushed offset the hint
// remembers by its checksum.
const hintTailBytes = 4096

// hint is what a log leaves for its next opening: up to where its bytes are
// known to be on the disk. Bad bytes below Flushed are damage, at or above it
// the log ends at the first bad byte. It is written only after what it says is
// true, and is ignored when RocketMQ has written to the store since, which the
// fingerprint tells.
//
// The file is text, a name and values a line; unknown names are skipped. The
// last line is the checksum of what stands before it.
type hint struct {
	Flushed      int64    // a record's border; every byte below it is on the disk
	Queued       int64    // a record's border; records below it are in the queues, on the disk
	Confirmed    int64    // up to where puts are known to be complete on other nodes; at most Flushed
	Timestamp    int64    // store time of the last record below Flushed or later, ms
	SegmentBytes int64    // 0: not known
	Start        int64    // where a log without a byte begins
	Created      bool     // the store is ours from its first byte
	Uncovered    bool     // records were met that RocketMQ queues and we do not
	TailBytes    int64    // so many bytes before Flushed …
	TailCRC      uint32   // … have this CRC-32 (IEEE)
	Fingerprints []string // of RocketMQ's files, as they are or are about to be
	CutTo        int64    // -1, or: a truncation to here is under way …
	CutFrom      int64    // … of a log that ended here
	Queues       queueEnds
}

const hintHeader = "haengine-hint 1"

func (h *hint) encode() []byte {
	var b bytes.Buffer
	line := func(name string, values ...any) {
		b.WriteString(name)
		for _, v := range values {
			fmt.Fprintf(&b, " %v", v)
		}
		b.WriteByte('\n')
	}
	b.WriteString(hintHeader + "\n")
	line("flushed", h.Flushed)
	line("queued", h.Queued)
	line("confirmed", h.Confirmed)
	line("timestamp", h.Timestamp)
	line("segment", h.SegmentBytes)
	line("start", h.Start)
	line("created", h.Created)
	line("uncovered", h.Uncovered)
	line("tail", h.TailBytes, h.TailCRC)
	for _, f := range h.Fingerprints {
		line("fingerprint", f)
	}
	if h.Queues.noted {
		line("queues", h.Queues.count, h.Queues.units, h.Queues.low)
		for _, q := range h.Queues.list {
			line("queue", q.id.ID, q.first, q.end, url.PathEscape(q.id.Topic))
		}
	}
	if h.CutTo >= 0 {
		line("cut", h.CutTo, h.CutFrom)
	}
	return sealText(b.Bytes())
}

// sealText ends a text file of ours with the checksum of what it holds.
func sealText(text []byte) []byte {
	return fmt.Appendf(text, "checksum %d\n", crc32.ChecksumIEEE(text))
}

// openText gives the lines of a text that sealText ended, from the second on,
// or why it is not one with such a header.
func openText(data []byte, header string) (*bufio.Scanner, error) {
	body, sum, ok := strings.Cut(string(data), "checksum ")
	want, err := strconv.ParseUint(strings.TrimSpace(sum), 10, 32)
	if !ok || err != nil || uint32(want) != crc32.ChecksumIEEE([]byte(body)) {
		return nil, errors.New("its checksum does not hold")
	}
	lines := bufio.NewScanner(strings.NewReader(body))
	if !lines.Scan() || lines.Text() != header {
		return nil, fmt.Errorf("its first line is not %q", header)
	}
	return lines, nil
}

func decodeHint(data []byte) (*hint, error) {
	lines, err := openText(data, hintHeader)
	if err != nil {
		return nil, err
	}
	h := &hint{CutTo: -1}
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		if err := h.set(fields[0], fields[1:]); err != nil {
			return nil, fmt.Errorf("line %q: %w", lines.Text(), err)
		}
	}
	if h.Flushed < 0 || h.Queued < 0 || h.Confirmed < 0 || h.Confirmed > h.Flushed || h.TailBytes < 0 || h.TailBytes > min(h.Flushed, hintTailBytes) {
		return nil, fmt.Errorf("flushed %d, queued %d, confirmed %d, tail %d are out of range", h.Flushed, h.Queued, h.Confirmed, h.TailBytes)
	}
	return h, lines.Err()
}

func (h *hint) set(name string, values []string) (err error) {
	number := func(v *int64, i int) {
		if i >= len(values) {
			err = errors.Join(err, errors.New("a number is missing"))
			return
		}
		n, e := strconv.ParseInt(values[i], 10, 64)
		*v = n
		err = errors.Join(err, e)
	}
	var sum int64
	switch name {
	case "flushed":
		number(&h.Flushed, 0)
	case "queued":
		number(&h.Queued, 0)
	case "confirmed":
		number(&h.Confirmed, 0)
	case "timestamp":
		number(&h.Timestamp, 0)
	case "segment":
		number(&h.SegmentBytes, 0)
	case "start":
		number(&h.Start, 0)
	case "created":
		h.Created, err = strconv.ParseBool(values[0])
	case "uncovered":
		h.Uncovered, err = strconv.ParseBool(values[0])
	case "tail":
		number(&h.TailBytes, 0)
		number(&sum, 1)
		h.TailCRC = uint32(sum)
	case "fingerprint":
		h.Fingerprints = append(h.Fingerprints, values[0])
	case "cut":
		number(&h.CutTo, 0)
		number(&h.CutFrom, 1)
	case "queues":
		h.Queues.noted = true
		number(&h.Queues.count, 0)
		number(&h.Queues.units, 1)
		number(&h.Queues.low, 2)
	case "queue":
		var id, first, end int64
		number(&id, 0)
		number(&first, 1)
		number(&end, 2)
		if len(values) < 4 {
			return errors.Join(err, errors.New("a topic is missing"))
		}
		topic, e := url.PathUnescape(values[3])
		h.Queues.list = append(h.Queues.list, queueEnd{id: QueueID{Topic: topic, ID: int32(id)}, first: first, end: end})
		err = errors.Join(err, e)
	}
	return err
}

// readHint reads the hint of a store. nil, without an error: there is none. An
// error says why the one that is there cannot be read.
func readHint(disk Disk, root string) (*hint, error) {
	path := filepath.Join(root, hintName)
	data, err := disk.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	h, err := decodeHint(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}

func writeHint(disk Disk, root string, h *hint) error {
	if err := disk.WriteFileAtomic(filepath.Join(root, hintName), h.encode()); err != nil {
		return fmt.Errorf("write hint: %w", err)
	}
	return nil
}

// fingerprint is what RocketMQ cannot help changing in a store: each start of
// a broker writes the lock file anew, and a running one writes the checkpoint.
// We write the checkpoint, too, and then say so in the hint; the lock file we
// leave as it is.
func fingerprint(disk Disk, root string, checkpoint []byte) (string, error) {
	lock, err := disk.Stat(filepath.Join(root, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		lock = FileInfo{}
	} else if err != nil {
		return "", err
	}
	sum := sha256.New()
	sum.Write(checkpoint)
	fmt.Fprintf(sum, "|%d", lock.ModTime.UnixNano())
	return hex.EncodeToString(sum.Sum(nil)[:16]), nil
}

// fingerprintNow is the fingerprint of the files as they are.
func fingerprintNow(disk Disk, root string) (string, error) {
	data, err := disk.ReadFile(filepath.Join(root, checkpointName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return fingerprint(disk, root, data)
}

// fits tells whether nobody but us has written to the store since.
func (h *hint) fits(now string) bool { return slices.Contains(h.Fingerprints, now) }
