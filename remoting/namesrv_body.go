package remoting

// DataVersion is what a broker's topics or groups are a version of. It differs
// whenever they do.
type DataVersion struct {
	StateVersion int64 `json:"stateVersion"`
	Timestamp    int64 `json:"timestamp"` // ms
	Counter      int64 `json:"counter"`
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
