package main

import (
	"testing"

	"pgregory.net/rapid"
)

func TestByteSizesAreReadWithAndWithoutUnits(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "65536": 65536, "64KiB": 64 << 10, "1GiB": 1 << 30, "1.5GiB": 3 << 29, "2 MiB": 2 << 20, "1TiB": 1 << 40,
		"8796093022207KiB": 8796093022207 << 10,
	} {
		if got, err := parseByteSize(in); err != nil || int64(got) != want {
			t.Errorf("parseByteSize(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "KiB", "-1", "-1KiB", "1GB", "1kb", "x", "1.5", "0.3KiB", "9007199254740993GiB", "1e30TiB", "NaN", "InfGiB", "64 KiB x"} {
		if got, err := parseByteSize(in); err == nil {
			t.Errorf("parseByteSize(%q) = %d, want an error", in, got)
		}
	}
}

func TestShortBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1 << 10: "1 KiB", 1_040_760: "1016 KiB", 1300 << 20: "1.27 GiB"} {
		if got := shortBytes(n); got != want {
			t.Errorf("%d is written %q, want %q", n, got, want)
		}
	}
}

func TestAByteSizeWritesBackToItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := byteSize(rapid.Int64Min(0).Draw(t, "bytes"))
		var got byteSize
		if err := got.Set(want.String()); err != nil || got != want {
			t.Fatalf("%d is written %q and read %d, %v", want, want.String(), got, err)
		}
	})
}
