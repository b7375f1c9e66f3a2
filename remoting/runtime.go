package remoting

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/haengine/haengine/engine"
)

// counts gives the broker's totals.
func (b *Broker) counts() counts {
	p := &b.pulls.traffic
	return counts{
		put: b.sends.messages.Load(), failed: b.sends.refusals.Load(),
		found: p.found.Load(), missed: p.missed.Load(), gotten: p.messages.Load(),
	}
}

// sample takes the broker's samples until ctx is over.
func (b *Broker) sample(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for at := time.Now(); ; {
		b.traffic.take(at)
		select {
		case <-ctx.Done():
			return
		case at = <-tick.C:
		}
	}
}

// diskInterval is how often a broker looks at its disk.
const diskInterval = 10 * time.Second

// diskState is what only the disk knows. It is looked at beforehand, so that a disk
// that hangs does not hide everything else.
type diskState struct {
	used, total int64 // bytes
	first       int64 // when the log's first record was stored, ms; 0: there is none
}

func (b *Broker) watchDisk(ctx context.Context) {
	tick := time.NewTicker(diskInterval)
	defer tick.Stop()
	for {
		d := &diskState{}
		d.used, d.total, _ = engine.OSDisk().Usage(b.o.Store)
		for rec, err := range b.o.Engine.Records(b.o.Engine.MinOffset()) {
			if err == nil {
				d.first = rec.StoreTimestamp
			}
			break
		}
		b.disk.Store(d)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// runtime answers with the node's numbers under RocketMQ's names (28,
// AdminBrokerProcessor.prepareRuntimeInfo). What is not there is not told; what
// there is none of, timers and acknowledgements, is 0.
func (a *admin) runtime(r *Request) {
	table := map[string]string{}
	a.putState(table, time.Now())
	a.putRates(table)
	a.putQueues(table, time.Now())
	a.putDisk(table)
	for _, name := range []string{
		"timerReadBehind", "timerOffsetBehind", "timerCongestNum", "startAcceptSendRequestTimeStamp",
		"ackThreadPoolQueueSize", "ackThreadPoolQueueHeadWaitTimeMills",
	} {
		table[name] = "0"
	}
	table["timerEnqueueTps"], table["timerDequeueTps"] = "0.0", "0.0"
	replyJSON(r, map[string]any{"table": table})
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func (a *admin) putState(table map[string]string, now time.Time) {
	s := a.b.o.Engine.Status()
	table["bootTimestamp"] = decimal(a.began.UnixMilli())
	up := now.Sub(a.began)
	table["runtime"] = fmt.Sprintf("[ %d days, %d hours, %d minutes, %d seconds ]",
		int(up.Hours())/24, int(up.Hours())%24, int(up.Minutes())%60, int(up.Seconds())%60)
	table["brokerActive"] = strconv.FormatBool(s.State == engine.StateServing && s.Role != engine.Slave)
	table["brokerVersion"], table["brokerVersionDesc"] = decimal(Version), versionName
	table["commitLogMinOffset"], table["commitLogMaxOffset"] = decimal(s.MinOffset), decimal(s.MaxOffset)
	table["dispatchBehindBytes"] = decimal(max(0, s.MaxOffset-s.QueuedOffset))
	table["remainHowManyDataToFlush"] = byteCount(max(0, s.MaxOffset-s.FlushedOffset))
	table["pageCacheLockTimeMills"] = decimal(a.b.o.Engine.AppendHeld().Milliseconds())
}

func (a *admin) putRates(table map[string]string) {
	t := &a.b.traffic
	table["putTps"] = t.rates(func(c *counts) int64 { return c.put })
	table["getFoundTps"] = t.rates(func(c *counts) int64 { return c.found })
	table["getMissTps"] = t.rates(func(c *counts) int64 { return c.missed })
	table["getTotalTps"] = t.rates(func(c *counts) int64 { return c.found + c.missed })
	gotten := t.rates(func(c *counts) int64 { return c.gotten })
	table["getTransferredTps"], table["getTransferedTps"] = gotten, gotten // 5.x, and 4.9.x
	now := a.b.counts()
	table["putMessageTimesTotal"], table["putMessageFailedTimes"] = decimal(now.put), decimal(now.failed)
	yesterday, today := t.mornings()
	table["msgPutTotalYesterdayMorning"], table["msgGetTotalYesterdayMorning"] = decimal(yesterday.put), decimal(yesterday.gotten)
	table["msgPutTotalTodayMorning"], table["msgGetTotalTodayMorning"] = decimal(today.put), decimal(today.gotten)
	table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"] = decimal(now.put), decimal(now.gotten)
}

// putQueues tells what waits. A send is appended as it comes, so that none waits
// for its turn: the size is how many wait for the disk or for replicas.
func (a *admin) putQueues(table map[string]string, now time.Time) {
	table["sendThreadPoolQueueSize"] = decimal(int64(a.b.sends.Outstanding()))
	table["sendThreadPoolQueueCapacity"] = decimal(int64(len(a.b.sends.sends.all)))
	table["sendThreadPoolQueueHeadWaitTimeMills"] = "0"
	hot, hotOldest := a.b.pulls.hot.queue(now)
	cold, coldOldest := a.b.pulls.cold.queue(now)
	table["pullThreadPoolQueueSize"] = decimal(int64(hot + cold))
	table["pullThreadPoolQueueCapacity"] = decimal(int64(a.b.pulls.o.Pulls))
	table["pullThreadPoolQueueHeadWaitTimeMills"] = decimal(max(hotOldest, coldOldest).Milliseconds())
}

// putDisk tells how full the disk is, and how old the first message.
func (a *admin) putDisk(table map[string]string) {
	d := a.b.disk.Load()
	if d == nil {
		return
	}
	if d.total > 0 {
		ratio := strconv.FormatFloat(float64(d.used)/float64(d.total), 'f', -1, 64)
		table["commitLogDiskRatio"], table["consumeQueueDiskRatio"] = ratio, ratio
		table["commitLogDirCapacity"] = fmt.Sprintf("Total : %s, Free : %s.", byteCount(d.total), byteCount(d.total-d.used))
	}
	if d.first > 0 {
		table["earliestMessageTimeStamp"] = decimal(d.first)
	}
}

// byteCount writes a number of bytes for people (MixAll.humanReadableByteCount).
func byteCount(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n)/1024, 0
	for ; f >= 1024 && unit < 5; unit++ {
		f /= 1024
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTPE"[unit])
}

// versionName is what Version stands for (MQVersion.getVersionDesc).
const versionName = "V5_3_3"
