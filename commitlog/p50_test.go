package commitlog
import ("testing";"time";"slices")
func TestP50(t *testing.T) {
	for _, win := range []int64{0, 4<<20, 64<<20} {
	o := testOptions(t.TempDir()); o.SegmentBytes = 512<<20; o.FlushInterval = time.Hour; o.PopulateBytes = win
	l := mustOpen(t, o)
	m := &Message{Topic: "topic", QueueID: 3, Body: make([]byte, 1024), Properties: "TAGS\x01TagA\x02", BornTimestamp: 1}
	var ds, es []int64
	for range 100000 {
		s := time.Now()
		e, _ := l.Encode(m)
		x := time.Now()
		l.Append(e, nil)
		d := time.Since(x)
		es = append(es, int64(x.Sub(s)))
		e.Release()
		ds = append(ds, int64(d))
	}
	slices.Sort(ds); slices.Sort(es)
	t.Log(win, "encode p50", es[50000], "append p50", ds[50000], "p99", ds[99000], "p99.9", ds[99900])
	l.Close()
	}
}
