package remoting

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/haengine/haengine/engine"
)

// ErrConfigDamaged means that neither a file of the config directory nor its
// backup can be read.
var ErrConfigDamaged = errors.New("configuration is damaged")

// configFile is one of RocketMQ's config/*.json and the copy of the text before
// it in .bak (ConfigManager, MixAll.string2File). Both are replaced as a whole
// and are durable when save returns. One goroutine at a time.
type configFile struct {
	disk engine.Disk
	path string
	log  *slog.Logger
	good []byte // the file's text as read or written last; empty: there is no good one
}

// load gives the file's text to decode, or the backup's with a warning if the
// file is missing, empty or refused by decode. There is neither in a new store.
// RocketMQ begins with nothing if the file is damaged and has no backup; here that
// is ErrConfigDamaged, for the next save would make the loss final.
func (f *configFile) load(decode func(text []byte) error) error {
	text, err := f.read(f.path, decode)
	if err == nil {
		f.good = text
		return nil
	}
	_, backupErr := f.read(f.path+".bak", decode)
	missing, backupMissing := errors.Is(err, fs.ErrNotExist), errors.Is(backupErr, fs.ErrNotExist)
	switch {
	case backupErr == nil:
		f.log.Warn("read the backup of a configuration file", "path", f.path+".bak", "reason", err)
		return nil
	case missing && backupMissing:
		return nil
	}
	return fmt.Errorf("%w: %w; its backup: %w; mend one of them, or remove both to begin with nothing",
		ErrConfigDamaged, err, backupErr)
}

func (f *configFile) read(path string, decode func(text []byte) error) ([]byte, error) {
	text, err := f.disk.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, fmt.Errorf("%s: the file is empty", path)
	}
	if err := decode(quoteKeys(text)); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}

// save replaces the file by compact JSON, laid out as RocketMQ does, and keeps
// the last good text as the backup: never what could not be read.
func (f *configFile) save(compact []byte) error {
	if err := f.disk.MkdirAll(filepath.Dir(f.path)); err != nil {
		return err
	}
	text := appendIndented(nil, compact)
	if len(f.good) > 0 && !bytes.Equal(f.good, text) {
		if err := f.disk.WriteFileAtomic(f.path+".bak", f.good); err != nil {
			return err
		}
	}
	if err := f.disk.WriteFileAtomic(f.path, text); err != nil {
		return err
	}
	f.good = text
	return nil
}

// quoteKeys puts bare integer keys in quotes, as {0:"a"} that fastjson writes:
// encoding/json does not read them. What is not JSON stays so.
func quoteKeys(text []byte) []byte {
	var out []byte // nil as long as nothing was changed
	from, inString, mayBeKey := 0, false, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString:
			switch c {
			case '\\':
				i++
			case '"':
				inString = false
			}
		case c == '"':
			inString, mayBeKey = true, false
		case c == '{' || c == ',':
			mayBeKey = true
		case mayBeKey && (c == '-' || c >= '0' && c <= '9'):
			end := i + 1
			for end < len(text) && text[end] >= '0' && text[end] <= '9' {
				end++
			}
			colon := end
			for colon < len(text) && isSpace(text[colon]) {
				colon++
			}
			if colon < len(text) && text[colon] == ':' { // and not a number in an array
				out = append(append(append(append(out, text[from:i]...), '"'), text[i:end]...), '"')
				from = end
			}
			i, mayBeKey = end-1, false
		case !isSpace(c):
			mayBeKey = false
		}
	}
	if out == nil {
		return text
	}
	return append(out, text[from:]...)
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// indentMax is the deepest that a line is indented. RocketMQ's files have 5 levels;
// a field of no use to us that has a thousand would make gigabytes of tabs.
const indentMax = 16

// appendIndented lays compact JSON out as fastjson's PrettyFormat: tabs, no
// space behind colons, nothing between the brackets of what is empty.
func appendIndented(dst, compact []byte) []byte {
	depth, inString := 0, false
	line := func() {
		dst = append(dst, '\n')
		for range min(depth, indentMax) {
			dst = append(dst, '\t')
		}
	}
	for i := 0; i < len(compact); i++ {
		c := compact[i]
		if inString {
			dst = append(dst, c)
			if c == '\\' && i+1 < len(compact) {
				i++
				dst = append(dst, compact[i])
			} else if c == '"' {
				inString = false
			}
			continue
		}
		switch c {
		case '{', '[':
			dst = append(dst, c)
			if i+1 < len(compact) && (compact[i+1] == '}' || compact[i+1] == ']') {
				i++
				dst = append(dst, compact[i])
				continue
			}
			depth++
			line()
		case '}', ']':
			depth--
			line()
			dst = append(dst, c)
		case ',':
			dst = append(dst, c)
			line()
		default:
			inString = c == '"'
			dst = append(dst, c)
		}
	}
	return dst
}

// appendText appends a JSON string.
func appendText(dst []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string is always encoded
	}
	return append(dst, text...)
}
