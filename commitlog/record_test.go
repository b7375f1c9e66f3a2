package commitlog

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/haengine/haengine/internal/fixture"
	"pgregory.net/rapid"
)

const fixtureSegmentBytes = 1 << 20

// fixtureLog gives the bytes of a fixture's log and what RocketMQ reads there.
func fixtureLog(t testing.TB, name string) ([]byte, []fixture.Line) {
	t.Helper()
	dir := fixture.Unpack(t, name)
	paths, err := filepath.Glob(filepath.Join(dir, "commitlog", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var log []byte
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		log = append(log, b...)
	}
	return log, fixture.Expected(t, name)
}

// lineOf gives what RocketMQ's decoder would say of our record.
func lineOf(r *Record) fixture.Line {
	sum := sha256.Sum256(r.Body)
	return fixture.Line{
		PhysicOffset: r.PhysicalOffset, Size: r.Size, Magic: fmt.Sprintf("%#08x", r.Magic), BodyCRC: r.BodyCRC,
		QueueID: r.QueueID, Flag: r.Flag, QueueOffset: r.QueueOffset, SysFlag: r.SysFlag,
		BornTimestamp: r.BornTimestamp, BornHost: r.BornHost.String(),
		StoreTimestamp: r.StoreTimestamp, StoreHost: r.StoreHost.String(),
		ReconsumeTimes: r.ReconsumeTimes, PreparedTransactionOffset: r.PreparedTransactionOffset,
		Topic: r.Topic, Properties: ParseProperties(r.Properties), PropertiesString: r.Properties,
		BodyLength: len(r.Body), BodySHA256: hex.EncodeToString(sum[:]), OffsetMsgID: r.OffsetMsgID(),
	}
}

func TestFixtureRecordsAreReadAsRocketMQReadsThemAndWrittenBackTheSame(t *testing.T) {
	for _, name := range []string{"mixed", "killed"} {
		t.Run(name, func(t *testing.T) {
			log, lines := fixtureLog(t, name)
			at, messages := int64(0), 0
			for _, line := range lines {
				room := log[at : at-at%fixtureSegmentBytes+fixtureSegmentBytes]
				switch {
				case line.End != nil:
					if at != *line.End || messages != line.Messages {
						t.Fatalf("end at %d after %d messages, want %d after %d", at, messages, *line.End, line.Messages)
					}
					if _, err := CheckRecord(room, at, true); !errors.Is(err, ErrCorrupt) {
						t.Errorf("behind the end: %v, want damage", err)
					}
					continue
				case line.Blank != nil:
					size, err := CheckRecord(room, at, true)
					if at != *line.Blank || size != int(line.Size) || err != ErrFiller {
						t.Fatalf("filler at %d: size %d, %v; want %d at %d", at, size, err, line.Size, *line.Blank)
					}
					if got := AppendFiller(nil, size); !bytes.Equal(got, room[:8]) {
						t.Errorf("filler at %d is written as %x, want %x", at, got, room[:8])
					}
					at += int64(size)
					continue
				}
				size, err := CheckRecord(room, at, true)
				if err != nil {
					t.Fatal(err)
				}
				record, err := DecodeRecord(room)
				if err != nil {
					t.Fatal(err)
				}
				if got := lineOf(&record); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", line) {
					t.Fatalf("record at %d\n got %+v\nwant %+v", at, got, line)
				}
				if n, err := RecordSize(&record.Message); n != size || err != nil {
					t.Fatalf("record at %d: RecordSize %d, %v; want %d", at, n, err, size)
				}
				if got := AppendRecord(nil, &record.Message); !bytes.Equal(got, room[:size]) {
					t.Fatalf("record at %d is not written back as it was", at)
				}
				at += int64(size)
				messages++
			}
		})
	}
}

// drawMessage draws any message that the format can hold.
func drawMessage(t *rapid.T) *Message {
	host := rapid.Custom(func(t *rapid.T) Host {
		h := Host{Port: rapid.Int32().Draw(t, "port")}
		if rapid.Bool().Draw(t, "v6") {
			h.Addr = netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "v6 address")))
		} else {
			h.Addr = netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4 address")))
		}
		return h
	})
	return &Message{
		Topic:   rapid.StringN(0, 200, 400).Draw(t, "topic"),
		QueueID: rapid.Int32().Draw(t, "queue"), Flag: rapid.Int32().Draw(t, "flag"), SysFlag: rapid.Int32().Draw(t, "sysFlag"),
		Properties:    rapid.StringN(0, 300, 600).Draw(t, "properties"),
		Body:          append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "body")...),
		BornTimestamp: rapid.Int64().Draw(t, "born"), BornHost: host.Draw(t, "bornHost"),
		ReconsumeTimes:            rapid.Int32().Draw(t, "reconsumed"),
		PreparedTransactionOffset: rapid.Int64().Draw(t, "prepared"),
		StoreTimestamp:            rapid.Int64().Draw(t, "stored"), StoreHost: host.Draw(t, "storeHost"),
		QueueOffset: rapid.Int64().Draw(t, "queueOffset"), PhysicalOffset: rapid.Int64Min(0).Draw(t, "physical"),
	}
}

func TestAnyRecordIsReadBackAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessage(t)
		b := AppendRecord([]byte("before"), m)[6:]
		if n, err := RecordSize(m); n != len(b) || err != nil {
			t.Fatalf("RecordSize %d, %v; the record has %d bytes", n, err, len(b))
		}
		size, err := CheckRecord(append(b[:len(b):len(b)], "after"...), m.PhysicalOffset, true)
		if size != len(b) || err != nil {
			t.Fatalf("CheckRecord %d, %v", size, err)
		}
		r, err := DecodeRecord(b)
		if err != nil {
			t.Fatal(err)
		}
		want := *m
		want.SysFlag = m.storedSysFlag()
		if fmt.Sprintf("%+v", r.Message) != fmt.Sprintf("%+v", want) {
			t.Fatalf("\n got %+v\nwant %+v", r.Message, want)
		}
		if (r.Magic == MagicV2) != (len(m.Topic) > 127) {
			t.Fatalf("magic %#x for a topic of %d bytes", r.Magic, len(m.Topic))
		}
		queueOffset, physical, stored := rapid.Int64().Draw(t, "q"), rapid.Int64().Draw(t, "p"), rapid.Int64().Draw(t, "s")
		patchRecord(b, queueOffset, physical, stored)
		want.QueueOffset, want.PhysicalOffset, want.StoreTimestamp = queueOffset, physical, stored
		if !bytes.Equal(b, AppendRecord(nil, &want)) {
			t.Fatal("a patched record differs from one that was encoded so")
		}
	})
}

// A torn or overwritten record is never taken for a good one, and never for
// more bytes than there are.
func TestEachDamagedByteOfARecordIsNoticed(t *testing.T) {
	m := &Message{
		Topic: "topic", Properties: "KEYS\x01k\x02", Body: []byte("a body of some bytes"), PhysicalOffset: 4096,
		BornHost: Host{Addr: netip.MustParseAddr("10.0.0.1"), Port: 1}, StoreHost: Host{Addr: netip.MustParseAddr("10.0.0.2")},
	}
	good := AppendRecord(nil, m)
	// RocketMQ's checksum covers the body only: a tear inside the properties'
	// text cannot be seen by it.
	propertiesAt := len(good) - len(m.Properties)
	for k := range good {
		torn := bytes.Clone(good)
		clear(torn[k:])
		if _, err := CheckRecord(torn, 4096, true); (err != nil) != (k < propertiesAt) {
			t.Errorf("torn at byte %d of %d: %v", k, len(good), err)
		}
		if _, err := CheckRecord(good[:k], 4096, true); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut at byte %d: %v", k, err)
		}
	}
	set := func(at int, v ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], v)
		return b
	}
	bodyAt, topicAt := 88, 88+len(m.Body)
	for _, c := range []struct {
		name string
		b    []byte
		kind string
		size int
	}{
		{"seven bytes", good[:7], KindShort, 0},
		{"zeros", make([]byte, 200), KindMagic, 0},
		{"size one more than there is", set(0, binary.BigEndian.AppendUint32(nil, uint32(len(good)+1))...), KindShort, 0},
		{"size negative", set(0, 0x80, 0, 0, 0), KindLengths, 0},
		{"size of one field less", set(0, binary.BigEndian.AppendUint32(nil, uint32(len(good)-1))...), KindLengths, 0},
		{"size below any record", set(0, 0, 0, 0, 90), KindLengths, 0},
		{"magic", set(7, 0xA8), KindMagic, 0},
		{"V2 instead of V1", set(7, 0xAB), KindLengths, 0},
		{"position", set(physicalOffsetAt, 1), KindPosition, len(good)},
		{"IPv6 flag", set(sysFlagAt+3, 0x10), KindLengths, 0},
		{"body length negative", set(84, 0xFF), KindLengths, 0},
		{"body length largest", set(84, 0x7F, 0xFF, 0xFF, 0xFF), KindLengths, 0},
		{"a body byte", set(bodyAt, 'A'), KindCRC, len(good)},
		{"checksum", set(8, good[8]^1), KindCRC, len(good)},
		{"topic length negative", set(topicAt, 0x80), KindLengths, 0},
		{"topic length one more", set(topicAt, 6), KindLengths, 0},
		{"properties length negative", set(topicAt+6, 0x80), KindLengths, 0},
		{"properties length one less", set(topicAt+7, byte(len(m.Properties)-1)), KindLengths, 0},
		{"filler of seven", AppendFiller(nil, 7), KindFiller, 0},
		{"filler of more than there is", AppendFiller(nil, 9), KindFiller, 0},
		{"filler of a negative size", AppendFiller(nil, -8), KindFiller, 0},
	} {
		size, err := CheckRecord(c.b, 4096, true)
		var bad *CorruptError
		if !errors.As(err, &bad) || bad.Kind != c.kind || bad.Offset != 4096 || size != c.size || bad.Detail == "" {
			t.Errorf("%s: size %d, %v; want size %d and %q", c.name, size, err, c.size, c.kind)
		}
	}
	if _, err := CheckRecord(set(physicalOffsetAt, 1), -1, true); err != nil {
		t.Errorf("position not asked for: %v", err)
	}
	if _, err := CheckRecord(set(bodyAt, 'A'), 4096, false); err != nil {
		t.Errorf("checksum not asked for: %v", err)
	}
	if size, err := CheckRecord(append(AppendFiller(nil, 12), 1, 2, 3, 4), 0, true); size != 12 || err != ErrFiller {
		t.Errorf("filler: %d, %v", size, err)
	}
}

func TestLengthsThatFitNoFieldAreRefused(t *testing.T) {
	for _, c := range []struct {
		m    Message
		want error
		max  int64
	}{
		{Message{Properties: strings.Repeat("p", 32768)}, ErrPropertiesTooLong, 32767},
		{Message{Topic: strings.Repeat("t", 32768)}, ErrMessageIllegal, 32767},
	} {
		_, err := RecordSize(&c.m)
		var over *LimitError
		if !errors.Is(err, c.want) || !errors.As(err, &over) || over.Max != c.max || over.Value != c.max+1 {
			t.Errorf("%v, want %v", err, c.want)
		}
	}
	if n, err := RecordSize(&Message{Properties: strings.Repeat("p", math.MaxInt16)}); n != 91+math.MaxInt16 || err != nil {
		t.Errorf("largest properties: %d, %v", n, err)
	}
}

func TestCodecDoesNotAllocate(t *testing.T) {
	m := &Message{Topic: "topic", Properties: "TAGS\x01TagA\x02WAIT\x01false\x02", Body: make([]byte, 1024)}
	b := AppendRecord(nil, m)
	if n := testing.AllocsPerRun(100, func() {
		b = AppendRecord(b[:0], m)
		patchRecord(b, 1, 2, 3)
		h, err := ParseHeader(b)
		if _, e := CheckRecord(b, 2, true); err != nil || e != nil || h.QueueOffset != 1 {
			t.Fatal(err, e, h)
		}
		if m.WaitStore() || tagsCode(viewString(h.Properties(b))) != 2598919 {
			t.Fatal("properties misread")
		}
	}); n != 0 {
		t.Errorf("%v allocations a record, want 0", n)
	}
}

func TestHostsAreWrittenAsJavaWritesThem(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1":         "10.0.0.1|7",
		"2001:db8::1":      "2001:db8:0:0:0:0:0:1|7",
		"::":               "0:0:0:0:0:0:0:0|7",
		"::ffff:192.0.2.1": "0:0:0:0:0:ffff:c000:201|7",
	} {
		if got := (Host{Addr: netip.MustParseAddr(text), Port: 7}).String(); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if got := (Host{}).String(); got != "0.0.0.0|0" {
		t.Errorf("zero host: %s", got)
	}
}

// fuzzSeeds gives each shape of record that the fixtures have.
func fuzzSeeds(f *testing.F) {
	log, lines := fixtureLog(f, "killed")
	for i, line := range lines {
		if line.Size > 0 && line.Size < 600 && i < 64 && line.Blank == nil {
			f.Add(log[line.PhysicOffset : line.PhysicOffset+int64(line.Size)])
		}
	}
	f.Add(append(AppendFiller(nil, 16), make([]byte, 8)...))
	f.Add(make([]byte, 100))
}

func FuzzDecodeRecord(f *testing.F) {
	fuzzSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeRecord(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrFiller) {
				t.Fatalf("error of another package: %v", err)
			}
			return
		}
		got := AppendRecord(nil, &r.Message)
		// The encoder chooses the magic and the checksum; all else is the record's.
		if (r.Magic == MagicV2) != (len(r.Topic) > 127) {
			return
		}
		binary.BigEndian.PutUint32(got[8:], r.BodyCRC)
		if !bytes.Equal(got, b[:r.Size]) {
			t.Fatalf("written back as\n%x, was\n%x", got, b[:r.Size])
		}
	})
}

func FuzzCheckRecord(f *testing.F) {
	fuzzSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, position := range []int64{-1, 0, 1115} {
			size, err := CheckRecord(b, position, true)
			var bad *CorruptError
			switch {
			case size < 0 || size > len(b):
				t.Fatalf("size %d of %d bytes", size, len(b))
			case err == nil:
				r, err := DecodeRecord(b)
				if err != nil || int(r.Size) != size || (position >= 0 && r.PhysicalOffset != position) {
					t.Fatalf("checked and not decoded: %+v, %v", r, err)
				}
			case err == ErrFiller:
				if size < 8 {
					t.Fatalf("filler of %d bytes", size)
				}
			case !errors.As(err, &bad) || bad.Kind == "" || bad.Error() == "":
				t.Fatalf("error of another package: %v", err)
			}
		}
	})
}
