package commitlog

// Worker is one of the things that a log does in the background, each on a
// goroutine of its own; with Options.Manual its owner does them by Work.
type Worker uint8

// The workers, in no order.
const (
	RollerWorker   Worker = iota // makes the next segment
	WindowWorker                 // makes pages ahead of the end ready
	FlushWorker                  // makes durable what was asked for
	IntervalWorker               // makes durable what is due; once every Options.FlushInterval
	DispatchWorker               // checks records and puts them into their queues
	KeeperWorker                 // notes what is durable, cleans up; about once a second
	TroubleWorker                // calls Options.OnTrouble
	WorkersEnd                   // one past the last
)

// Work does what a worker has to do now, on the caller's goroutine, in a log
// that was opened with Options.Manual. One call at a time, beside no other
// method of the log, and not from a callback of the options. Callbacks run
// inside it. After Close it does nothing.
//
// With it the order in which the workers come to their turn, and with that
// every step on the disk, is the caller's: a run can be replayed. What would
// wait for a worker, as Flush, Close, TakeOver, or an append that needs the next
// segment, has it do its work inside the call.
func (l *Log) Work(w Worker) {
	if l.over.Load() {
		return
	}
	switch w {
	case RollerWorker:
		if taken(l.roller.kick) {
			l.roller.prepare()
		}
	case WindowWorker:
		if taken(l.window.kick) {
			l.window.fill()
		}
	case FlushWorker:
		if taken(l.flusher.kick) {
			for l.flusher.serve() {
				continue
			}
		}
	case IntervalWorker:
		l.flusher.interval(l.opts.Monotonic())
	case DispatchWorker:
		l.dispatcher.work()
	case KeeperWorker:
		taken(l.keeper.kick)
		l.keeper.look()
	case TroubleWorker:
		if taken(l.troubled) && l.opts.OnTrouble != nil {
			l.opts.OnTrouble(l.failed.Load())
		}
	}
}

// goes starts a worker's loop, which closes done at its end; or nothing, if the
// owner does the work.
func (l *Log) goes(loop func(), done chan struct{}) {
	if l.opts.Manual {
		close(done)
		return
	}
	go loop()
}

// taken takes a signal, if there is one; a closed channel has one for everybody.
func taken(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
