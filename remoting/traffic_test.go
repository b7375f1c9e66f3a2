package remoting

import (
	"strings"
	"testing"
	"time"

	"github.com/haengine/haengine/engine"
)

func TestRatesAreOfTheLastSeconds(t *testing.T) {
	var now counts
	tr := traffic{now: func() counts { return now }}
	put := func(c *counts) int64 { return c.put }
	want := func(rates string) {
		t.Helper()
		if got := tr.rates(put); got != rates {
			t.Errorf("rates %q, want %q", got, rates)
		}
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	want("0 0 0")
	second := func(n, messages int64) {
		for range n {
			tr.take(at)
			at = at.Add(time.Second)
			now.put += messages
		}
	}
	second(1, 100)
	want("0 0 0")
	second(1, 100)
	want("100 100 100") // as long as there are samples
	second(60, 0)
	want("0 1.6666666666666667 3.278688524590164")
	second(2000, 6)
	want("6 6 6")
	if len(tr.samples) != samplesMax {
		t.Errorf("%d samples are kept", len(tr.samples))
	}
}

func TestCountsOfMidnightsAreKept(t *testing.T) {
	now := counts{put: 5}
	tr := traffic{now: func() counts { return now }}
	at := time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC)
	want := func(before, today int64) {
		t.Helper()
		if y, m := tr.mornings(); y.put != before || m.put != today {
			t.Errorf("mornings %d, %d, want %d, %d", y.put, m.put, before, today)
		}
	}
	tr.take(at)
	want(0, 0)
	now.put = 7
	tr.take(at.Add(time.Second))
	want(0, 7)
	now.put = 9
	tr.take(at.Add(time.Minute))
	want(0, 7)
	tr.take(at.Add(24*time.Hour + time.Second))
	want(7, 9)
}

func TestABrokersNumbersAreTold(t *testing.T) {
	b, _ := openBroker(t, t.TempDir(), BrokerOptions{})
	c := dialAddr(t, b.Server().Addr().String(), nil)
	batch := sendCommand(CodeSendBatch, "orders", 1, "", "")
	for range 3 {
		batch.Body = engine.AppendClientMessage(batch.Body, &engine.Message{Body: []byte("x")})
	}
	wantCode(t, ask(t, c, &batch), Success)
	bad := sendCommand(CodeSendMessageV2, "orders", 99, "", "x")
	wantCode(t, ask(t, c, &bad), InvalidParameter)
	until(t, "they can be read", func() bool { return b.o.Engine.Status().QueuedOffset == b.o.Engine.EndOffset() })
	wantCode(t, ask(t, c, &Command{Code: CodePullMessage, Ext: pullExt("g", "orders", 1, 0, 4, 0)}), Success)
	wantCode(t, ask(t, c, &Command{Code: CodePullMessage, Ext: pullExt("g", "orders", 1, 3, 4, 0)}), PullNotFound)
	if got, want := b.counts(), (counts{put: 3, failed: 1, found: 1, missed: 1, gotten: 3}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
	var text string
	until(t, "the rates and the disk are told", func() bool {
		a := ask(t, c, &Command{Code: CodeGetBrokerRuntimeInfo})
		wantCode(t, a, Success)
		text = string(a.Body)
		return strings.Contains(text, `"commitLogDiskRatio":"0.`) && !strings.Contains(text, `"putTps":"0 0 0"`)
	})
	// What mqadmin clusterList prints without a look whether it is there.
	for _, name := range []string{
		"sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueSize", "pullThreadPoolQueueHeadWaitTimeMills", "ackThreadPoolQueueSize",
		"ackThreadPoolQueueHeadWaitTimeMills", "pageCacheLockTimeMills", "timerReadBehind", "timerDequeueTps", "getTransferredTps", "getTransferedTps",
		`msgPutTotalTodayNow":"3"`, `msgGetTotalTodayNow":"3"`, `remainHowManyDataToFlush":"`, `runtime":"[ 0 days, 0 hours, 0 minutes, `,
	} {
		if !strings.Contains(text, `"`+name) {
			t.Errorf("%s is not in %s", name, text)
		}
	}
}

func TestBytesAreWrittenForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 5 << 40: "5.0 TiB"} {
		if got := byteCount(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
