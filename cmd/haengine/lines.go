package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
)

// lineMax is the longest line that is read: far more than any broker takes, so that
// the broker says what it takes, and bounded, because a file may have no line ends.
const lineMax = 15 << 20

// lineReader cuts lines. The last one needs no end; \r stays, as it is part of what
// was written.
type lineReader struct {
	in   *bufio.Reader
	line int64
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{in: bufio.NewReaderSize(r, 64<<10)}
}

// next gives the next line in memory of its own, or io.EOF.
func (l *lineReader) next() ([]byte, error) {
	l.line++
	line := []byte{}
	for {
		part, err := l.in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > lineMax+1:
			return nil, fmt.Errorf("line %d is longer than %s, more than any broker takes", l.line, shortBytes(lineMax))
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		default:
			return nil, err
		}
	}
}

type sourceLine struct {
	body []byte
	err  error
}

// readAhead reads on a goroutine of its own, because a read of a terminal or a pipe
// cannot be interrupted: at the end of the process it may still be in one.
func readAhead(ctx context.Context, next func() ([]byte, error)) <-chan sourceLine {
	lines := make(chan sourceLine, 16)
	go func() {
		for {
			body, err := next()
			select {
			case lines <- sourceLine{body, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}
