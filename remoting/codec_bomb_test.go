package remoting

import (
	"strings"
	"testing"
	"time"
)

// What a header costs grows with its length and not faster: 16 MiB of each of
// these once kept an event loop, and all of its connections, for minutes.
func TestNoHeaderCostsMoreThanItsLength(t *testing.T) {
	const size = 8 << 20
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	for name, header := range map[string]string{
		"escapes before a far quote":  `{"remark":"` + fill(`\\`) + `"}`,
		"escapes in a name":           `{"` + fill(`\\`) + `":1}`,
		"escaped quotes":              `{"x":["` + fill(`\"`) + `"]}`,
		"fields again and again":      `{` + fill(`"extFields":{},`) + `"code":1}`,
		"one field again and again":   `{` + fill(`"extFields":{"a":"b"},`) + `"code":1}`,
		"names again and again":       `{` + fill(`"code":1,`) + `"code":1}`,
		"values in a field":           `{"extFields":{"a":[` + fill(`{"b":"\\"},`) + `1]}}`,
		"surrogates":                  `{"remark":"` + fill(`\ud83d`) + `"}`,
		"not UTF-8":                   `{"remark":"` + fill("\xff") + `"}`,
		"a number of a million parts": `{"code":` + fill("1") + `}`,
	} {
		began := time.Now()
		var c Command
		_ = parseJSONHeader([]byte(header), &c, nil) // whether it is refused is another matter
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("%s: %v for %d bytes", name, took, len(header))
		}
	}
}
