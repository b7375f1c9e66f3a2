package transfer

// Decoder finds units of one fixed size (reports, frame headers) in a stream
// that arrives cut anywhere. It holds the bytes of a unit that is not whole
// yet and nothing else, so its memory is bounded by the unit. The zero value
// is not ready: use NewReportDecoder or NewHeaderDecoder.
//
// Invariant: 0 <= held < size <= ExtendedHeaderBytes.
type Decoder struct {
	part [ExtendedHeaderBytes]byte
	held int
	size int
}

// NewReportDecoder returns a decoder of reports.
func NewReportDecoder() Decoder { return Decoder{size: ReportBytes} }

// NewHeaderDecoder returns a decoder of frame headers.
func NewHeaderDecoder() Decoder { return Decoder{size: FrameHeaderBytes} }

// newDecoder returns a decoder of units of size bytes, of which the first have
// arrived already.
func newDecoder(size int, begun []byte) Decoder {
	d := Decoder{size: size}
	d.held = copy(d.part[:], begun)
	return d
}

// Take consumes n bytes of b, at most what the unit lacks. unit is the whole
// unit, or nil when more bytes are needed; it is valid until the next call and
// while b is. Take consumes something whenever b is not empty.
func (d *Decoder) Take(b []byte) (unit []byte, n int) {
	if d.held == 0 && len(b) >= d.size {
		return b[:d.size], d.size
	}
	n = copy(d.part[d.held:d.size], b)
	d.held += n
	if d.held < d.size {
		return nil, n
	}
	d.held = 0
	return d.part[:d.size], n
}

// Missing returns how many bytes the unit lacks; never 0.
func (d *Decoder) Missing() int { return d.size - d.held }

// Held returns how many bytes of an incomplete unit have arrived.
func (d *Decoder) Held() int { return d.held }

// Reset forgets the incomplete unit: a new stream begins.
func (d *Decoder) Reset() { d.held = 0 }
