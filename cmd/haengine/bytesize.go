package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// byteSize is a number of bytes on the command line: plain, or with one of
// KiB, MiB, GiB, TiB. It is a pflag.Value.
type byteSize int64

var byteUnits = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// parseByteSize reads 64KiB, 1GiB, 1.5GiB or 65536. Units of 1000 are refused
// by name, because a segment of "1GB" and one of 1GiB do not replicate.
func parseByteSize(s string) (byteSize, error) {
	number, unit := strings.TrimSpace(s), int64(1)
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		if n < 0 || n > math.MaxInt64/unit {
			return 0, fmt.Errorf("%q is out of range", s)
		}
		return byteSize(n * unit), nil
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || unit == 1 || f < 0 || f*float64(unit) >= math.MaxInt64 || f != f || f*float64(unit) != math.Trunc(f*float64(unit)) {
		return 0, fmt.Errorf("%q is no byte size; want a number, or one with KiB, MiB, GiB or TiB", s)
	}
	return byteSize(f * float64(unit)), nil
}

// String writes the largest unit that divides the size.
func (b byteSize) String() string {
	for _, u := range byteUnits {
		if b != 0 && int64(b)%u.bytes == 0 {
			return strconv.FormatInt(int64(b)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// Set implements pflag.Value.
func (b *byteSize) Set(s string) (err error) {
	*b, err = parseByteSize(s)
	return err
}

// Type implements pflag.Value.
func (b *byteSize) Type() string { return "bytes" }

// shortBytes writes n for people, to three digits or the unit: 1.21 GiB.
func shortBytes(n int64) string {
	for _, u := range byteUnits {
		if n >= u.bytes {
			v := float64(n) / float64(u.bytes)
			if v >= 1000 { // where three digits would be written with an exponent
				return fmt.Sprintf("%.0f %s", v, u.name)
			}
			return fmt.Sprintf("%.3g %s", v, u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
