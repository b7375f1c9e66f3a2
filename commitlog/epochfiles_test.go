package commitlog

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The texts are RocketMQ's: the first is the example of its CheckpointFile, the
// checksums are java.util.zip.CRC32 of the lines behind them, without the top
// bit, which the last one has.
func TestRocketMQsEpochFileIsReadAndWrittenByteForByte(t *testing.T) {
	for _, c := range []struct {
		list []Epoch
		text string
	}{
		{[]Epoch{{Number: 7, Start: 7000}, {Number: 8, Start: 8000}}, "2\n773307083\n7-7000\n8-8000\n"},
		{[]Epoch{{Number: 1}}, "1\n1725254278\n1-0\n"},
		{[]Epoch{{Number: 5, Start: 100}, {Number: 6, Start: 1 << 31}}, "2\n1467572731\n5-100\n6-2147483648\n"},
		{[]Epoch{{}, {Number: 1<<31 - 1, Start: 1<<63 - 2}}, "2\n1681661877\n0-0\n2147483647-9223372036854775806\n"},
	} {
		if got := string(encodeEpochFile(c.list)); got != c.text {
			t.Errorf("%v is written as %q, want %q", c.list, got, c.text)
		}
		for _, text := range []string{c.text, strings.TrimSuffix(c.text, "\n"), unchecked(c.text)} {
			if got, err := decodeEpochFile([]byte(text)); err != nil || !slices.Equal(got, c.list) {
				t.Errorf("%q is read as %v, %v; want %v", text, got, err, c.list)
			}
		}
	}
}

// unchecked gives a text of RocketMQ's with the checksum that holds always.
func unchecked(text string) string {
	lines := strings.SplitAfterN(text, "\n", 3)
	lines[1] = "0\n"
	return strings.Join(lines, "")
}

func TestEpochFileThatIsNoneIsRefused(t *testing.T) {
	for _, text := range []string{
		"", "\n", "x", "0\n0\n", "1", "1\n0", "1\n0\n", "1\n\n1-0\n", "1\n-1\n1-0\n", "1\n2147483648\n1-0\n",
		"2\n773307083\n7-7000\n", "2\n773307083\n7-7000\n8-8001\n", "2\n773307084\n7-7000\n8-8000\n",
		"1\n0\n7-7000\n8-8000\n", "3\n0\n7-7000\n8-8000\n", "-1\n0\n1-0\n",
		"1\n0\n7\n", "1\n0\n7-\n", "1\n0\n-7-5\n", "1\n0\n7--5\n", "1\n0\n7-5-6\n", "1\n0\n2147483648-5\n", "1\n0\n7-9223372036854775808\n",
		"2\n0\n7-7000\n7-8000\n", "2\n0\n7-7000\n8-7000\n", "2\n0\n8-7000\n7-8000\n", "2\n0\n7-8000\n8-7000\n", "1\n0\n\n7-5\n",
		"2\n7-7000\n8-8000\n", // 5.0 wrote no checksum; later ones do not read that either
	} {
		if list, err := decodeEpochFile([]byte(text)); err == nil {
			t.Errorf("%q is read as %v", text, list)
		}
	}
}

func TestEpochNotesAreReadAsTheyWereWritten(t *testing.T) {
	const text = "haengine-epochs 1\nepoch 5 00000000000000ff 100\nepoch 7 ffffffffffffffff 590000\nchecksum 1659283494\n"
	want := []Epoch{{5, 255, 100}, {7, 1<<64 - 1, 590000}}
	if got := string(encodeEpochNotes(want)); got != text {
		t.Errorf("written as %q, want %q", got, text)
	}
	for _, list := range [][]Epoch{want, {}} {
		if got, err := decodeEpochNotes(encodeEpochNotes(list)); err != nil || got == nil || !slices.Equal(got, list) {
			t.Errorf("%v is read as %v, %v", list, got, err)
		}
	}
	newer := sealText([]byte("haengine-epochs 1\nfuture 1 2 3\nepoch 5 ff 100 new\nshort\nepoch 7 ffffffffffffffff 590000\n"))
	if got, err := decodeEpochNotes(newer); err != nil || !slices.Equal(got, want) {
		t.Errorf("with unknown names: %v, %v", got, err)
	}
	for _, bad := range []string{
		text[1:], strings.Replace(text, "590000", "590001", 1), text[:len(text)-20], "",
		string(sealText([]byte("haengine-hint 1\n"))),
		string(sealText([]byte("haengine-epochs 1\nepoch 5 xyz 100\n"))),
		string(sealText([]byte("haengine-epochs 1\nepoch 5 ff 10000000000000000000\n"))),
		string(sealText([]byte("haengine-epochs 1\nepoch 5 ff 100\nepoch 6 ff 100\n"))),
		string(sealText([]byte("haengine-epochs 1\nepoch -5 ff 100\n"))),
	} {
		if got, err := decodeEpochNotes([]byte(bad)); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}

func FuzzEpochFile(f *testing.F) {
	f.Add([]byte("2\n773307083\n7-7000\n8-8000\n"))
	f.Add([]byte("1\n0\n7-7000"))
	f.Add([]byte("1\n0\n+7-+0\n"))
	f.Add([]byte("1000000000\n0\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := decodeEpochFile(b)
		if err != nil {
			return
		}
		again, err := decodeEpochFile(encodeEpochFile(list))
		if err != nil || !slices.Equal(again, list) || len(list) == 0 || checkEpochs(list) != nil {
			t.Errorf("%v is written back as %v, %v", list, again, err)
		}
	})
}

func FuzzEpochNotes(f *testing.F) {
	f.Add(encodeEpochNotes([]Epoch{{5, 255, 100}, {7, 1, 590000}}))
	f.Add(encodeEpochNotes(nil))
	f.Add([]byte("haengine-epochs 1\nepoch +5 0 +0\nother\n"))
	f.Add([]byte("haengine-epochs 1\nepoch 5\n"))
	f.Add([]byte("checksum 0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, text := range [][]byte{b, sealText(slices.Clone(b))} { // few inputs have a right checksum
			list, err := decodeEpochNotes(text)
			if err != nil {
				continue
			}
			again, err := decodeEpochNotes(encodeEpochNotes(list))
			if err != nil || !slices.Equal(again, list) || checkEpochs(list) != nil {
				t.Errorf("%v is written back as %v, %v", list, again, err)
			}
		}
	})
}

// Which of the files counts.
func TestWhichListOfEpochsCounts(t *testing.T) {
	e := func(number int32, id uint64, start int64) Epoch { return Epoch{number, id, start} }
	file := func(list ...Epoch) string { return string(encodeEpochFile(list)) }
	notes := func(list ...Epoch) string { return string(encodeEpochNotes(list)) }
	a, b, c, d := e(1, 11, 0), e(2, 22, 100), e(3, 33, 100), e(5, 0, 300)
	for name, k := range map[string]struct {
		ours, theirs, backup string // empty: not there
		alone                bool   // nobody else has written since
		want                 []Epoch
		same                 bool
	}{
		"none at all":                   {"", "", "", true, nil, true},
		"RocketMQ's alone":              {"", file(a, b), file(a), false, []Epoch{e(1, 0, 0), e(2, 0, 100)}, true},
		"RocketMQ's, opened by us":      {"", file(a, b), file(a), true, []Epoch{e(1, 0, 0), e(2, 0, 100)}, true},
		"RocketMQ's backup alone":       {"", "", file(a), false, []Epoch{e(1, 0, 0)}, true},
		"RocketMQ's is cut off":         {"", "2\n77", file(a), false, []Epoch{e(1, 0, 0)}, true},
		"nothing can be read":           {"x", "x", "x", true, nil, true},
		"ours cannot be read":           {"x", file(a, b), "", true, []Epoch{e(1, 0, 0), e(2, 0, 100)}, false},
		"both agree":                    {notes(a, b), file(a, b), file(a), true, []Epoch{a, b}, true},
		"both agree, RocketMQ ran":      {notes(a, b), file(a, b), file(a, b), false, []Epoch{a, b}, true},
		"crash between, first epoch":    {notes(a), "", "", true, []Epoch{a}, false},
		"crash between, next epoch":     {notes(a, b), file(a), "", true, []Epoch{a, b}, false},
		"crash between, replaced epoch": {notes(a, c), file(a, b), file(a), true, []Epoch{a, c}, false},
		"crash between, cut":            {notes(a), file(a, b), file(a), true, []Epoch{a}, false},
		"crash between, all cut":        {notes(), file(a, b), file(a), true, nil, false},
		"crash between, file is gone":   {notes(), "", file(a), true, nil, false},
		"crash between, both are gone":  {notes(), "", "", false, nil, false},
		"RocketMQ went on":              {notes(a, b), file(a, b, d), file(a, b), false, []Epoch{a, b, d}, false},
		"RocketMQ replaced one":         {notes(a, b), file(a, c), file(a), false, []Epoch{a, e(3, 0, 100)}, false},
		"RocketMQ moved a start":        {notes(a, b), file(e(1, 0, 50), b), file(a, b), false, []Epoch{e(1, 0, 50), b}, false},
		"RocketMQ cut":                  {notes(a, b), file(a), file(a), false, []Epoch{a}, false},
		"RocketMQ began anew":           {notes(a, b), file(e(9, 0, 100)), "", false, []Epoch{e(9, 0, 100)}, false},
		"RocketMQ's was removed":        {notes(a, b), "", file(a), true, []Epoch{a, b}, false},
		"RocketMQ's is damaged":         {notes(a, b), "2\n7", file(a), true, []Epoch{a, b}, false},
		"damaged after a cut":           {notes(a), "1\n7", file(a, b), true, []Epoch{a}, false},
		"RocketMQ died as it went on":   {notes(a, b), "4\n7", file(a, b, d), false, []Epoch{a, b, d}, false},
		"RocketMQ died at once":         {notes(a, b), "3\n7", file(a, b), false, []Epoch{a, b}, false},
	} {
		disk := NewTwin(1)
		must(t, disk.MkdirAll(twinStore))
		for name, text := range map[string]string{epochNotesName: k.ours, epochFileName: k.theirs, epochBackupName: k.backup} {
			if text != "" {
				must(t, disk.WriteFileAtomic(filepath.Join(twinStore, name), []byte(text)))
			}
		}
		found := findEpochs(disk, twinStore)
		if list, same := found.judge(k.alone); !slices.Equal(list, k.want) || same != k.same {
			t.Errorf("%s: %v, files may stay %v; want %v, %v", name, list, same, k.want, k.same)
		}
		bad := k.ours == "x" || len(k.theirs) > 0 && len(k.theirs) < 5
		if bad != (len(found.bad) > 0) || bad && !strings.Contains(found.bad[0].Error(), twinStore+"/") {
			t.Errorf("%s: files that cannot be read: %v", name, found.bad)
		}
	}
}
