package remoting

// quoteKeys puts quotes around the bare numbers that are names in an object,
// {0:1}, which fastjson writes and reads. Other text is left as it is.
func quoteKeys(text []byte) []byte {
	var out []byte
	copied := 0
	inside := false // of a string
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case inside && c == '\\':
			i++
		case c == '"':
			inside = !inside
		}
		if inside || c != '{' && c != ',' {
			continue
		}
		from := skipSpace(text, i+1)
		to := from
		for to < len(text) && (text[to] >= '0' && text[to] <= '9' || text[to] == '-') {
			to++
		}
		if end := skipSpace(text, to); to > from && end < len(text) && text[end] == ':' {
			out = append(out, text[copied:from]...)
			out = append(append(append(out, '"'), text[from:to]...), '"')
			copied = to
		}
		i = max(i, to-1)
	}
	if out == nil {
		return text
	}
	return append(out, text[copied:]...)
}

func skipSpace(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r') {
		i++
	}
	return i
}
