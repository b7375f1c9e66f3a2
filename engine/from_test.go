package engine

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

func TestParseFrom(t *testing.T) {
	for text, want := range map[string]From{"first": FromFirst, "FIRST": FromFirst, "last-segment": FromLastSegment, "Last_Segment": FromLastSegment, "0": 0, "65536": 65536} {
		if got, err := ParseFrom(text); err != nil || got != want {
			t.Errorf("%q is %v, %v", text, got, err)
		}
		if got, err := ParseFrom(want.String()); err != nil || got != want {
			t.Errorf("%v does not read itself: %v, %v", want, got, err)
		}
	}
	for _, text := range []string{"", "-1", "last", "64KiB", "9223372036854775808"} {
		if got, err := ParseFrom(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// An empty slave begins where it was told to, in either protocol as far as
// RocketMQ's can ask for it, and goes on
// there after a restart.
func TestAnEmptySlaveBeginsWhereItWasToldTo(t *testing.T) {
	const segment = 64 << 10
	m := openMaster(t, Options{SegmentBytes: segment})
	puts(t, m, 300)
	for _, wire := range []WireMode{WireAuto, WirePlain} {
		for from, want := range map[From]int64{
			FromFirst: 0, FromLastSegment: -1, // of its end at that moment
			1: 0, segment: segment, 2*segment + 77: 2 * segment,
		} {
			if wire == WirePlain && from > 0 {
				continue
			}
			t.Run(fmt.Sprintf("%v from %v", wire, from), func(t *testing.T) {
				if want < 0 {
					end := m.log.EndOffset()
					want = end - end%segment
				}
				o := Options{Store: t.TempDir(), SegmentBytes: segment, Wire: wire, From: from}
				s := openSlave(t, m, o)
				holdsRest := func(s *Engine) {
					eventually(t, "the slave has the master's end", func() bool { return s.log.EndOffset() == m.log.EndOffset() })
					if got := s.log.MinOffset(); got != want {
						t.Fatalf("the copy begins at %d, want %d", got, want)
					}
					sameBytes(t, m, s, want, m.log.EndOffset())
				}
				holdsRest(s)
				shut(t, s)
				puts(t, m, 3)
				o.From = FromFirst // of no meaning any more
				holdsRest(openSlave(t, m, o))
			})
		}
	}
}

// A place that the master does not hold is refused with both ranges.
func TestAPlaceThatTheMasterDoesNotHoldIsRefused(t *testing.T) {
	m := openMaster(t, Options{SegmentBytes: 64 << 10})
	s := openSlave(t, m, Options{SegmentBytes: 64 << 10, From: 3*(64<<10) + 5})
	want := fmt.Sprintf("this copy is to begin with the segment of offset %d, the master holds 0 to 0", 3*(64<<10)+5)
	eventually(t, "the slave says what it needs", func() bool {
		master := s.Status().Master
		return master.State == "stalled" && strings.Contains(master.LastError, want)
	})
	if s.log.EndOffset() != 0 {
		t.Errorf("the slave has a log up to %d", s.log.EndOffset())
	}
	puts(t, m, 300) // now it does
	eventually(t, "the slave has the master's end", func() bool { return s.log.EndOffset() == m.log.EndOffset() })
	if got := s.log.MinOffset(); got != 3*(64<<10) {
		t.Errorf("the copy begins at %d", got)
	}
	sameBytes(t, m, s, s.log.MinOffset(), s.log.EndOffset())
}

// RocketMQ's master takes any report for an acknowledgement: one of an offset that
// it does not have yet would confirm puts to come. It is asked nothing then.
func TestAPlainMasterIsNotToldOfBytesThatNobodyHas(t *testing.T) {
	reports := make(chan int64, 100)
	m := listenRaw(t, func(_ int64, c net.Conn) {
		for {
			offset, err := readReport(c)
			if err != nil {
				return
			}
			if offset != -1 {
				reports <- offset
			}
			if _, err := c.Write(header(offset, 0)); err != nil {
				return
			}
		}
	})
	for _, wire := range []WireMode{WirePlain, WireAuto} {
		s := slaveOf(t, m, Options{Wire: wire, From: 1 << 30})
		eventually(t, "it says why it cannot", func() bool {
			trouble := s.Status().Trouble
			return trouble != nil && trouble.Cause == "protocol" && strings.Contains(trouble.Reason, "cannot be asked for a copy that begins at an offset")
		})
		if s.Ready() == nil {
			t.Error("it says that it is ready")
		}
		shut(t, s)
	}
	if len(reports) > 0 {
		t.Errorf("it reports %d", <-reports)
	}
}
