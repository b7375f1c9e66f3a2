package commitlog

// repair is truncate after a crash. Units of records before offset are on the
// disk, in order; behind them anything may stand: units that were written and
// not synced, pages of zeros between them, a unit of which half was written. So
// the end is looked for from the front, where what stands is sound. After a
// clean stop nothing of that is expected, and what is found is damage; what is
// read is on the disk then. The writer's alone.
func (q *queues) repair(offset int64, clean bool) error {
	q.drop()
	return q.each(func(qu *queue) error { return qu.repair(offset, clean) })
}

func (qu *queue) repair(offset int64, clean bool) error {
	qu.pending = qu.pending[:0]
	cut, err := qu.soundEnd(offset)
	if err != nil {
		return err
	}
	if err := qu.cutAt(cut); err != nil {
		return err
	}
	if !clean {
		if err := qu.distrust(); err != nil {
			return err
		}
	}
	return qu.setMaxPhysical()
}

// distrust has the queue's last files and its directory synced by the next
// flush. The process before us may have left them dirty in memory: what we read
// there, zeros included, is not what a power cut would leave.
func (qu *queue) distrust() error {
	for i := max(0, len(qu.files)-3); i < len(qu.files); i++ {
		f, err := qu.acquire(qu.files[i].base, false)
		if err != nil {
			return err
		}
		f.dirty.Store(true)
		qu.mu.RUnlock()
	}
	qu.set.createdIn(qu)
	return nil
}

// soundEnd gives the index behind the last of the units that stand in a row,
// each a record's behind the one before it and before offset.
func (qu *queue) soundEnd(offset int64) (int64, error) {
	from, err := qu.soundStart(offset)
	if err != nil || len(qu.files) == 0 {
		return from, err
	}
	perFile := qu.set.fileBytes / queueUnitBytes
	end := qu.files[len(qu.files)-1].base/queueUnitBytes + perFile
	block := queueBlocks.Get().(*[queueBufferBytes]byte)
	defer queueBlocks.Put(block)
	sound, last := from, int64(-1)
	for at := from; at < end; {
		b := block[:min(end-at, int64(len(block)/queueUnitBytes))*queueUnitBytes]
		if err := qu.readBytes(b, at*queueUnitBytes); err != nil {
			return 0, err
		}
		for ; len(b) > 0; b = b[queueUnitBytes:] {
			e := decodeQueueEntry(b)
			at++
			if e.blank() {
				continue // a gap of the log, if records follow
			}
			if !e.valid() || e.Offset >= offset || e.Offset <= last {
				return sound, nil
			}
			sound, last = at, e.Offset
		}
	}
	return sound, nil
}

// soundStart gives an index to begin at: the queue's first, or that of a file
// which is followed by one that begins well. Everything in it is sound then.
func (qu *queue) soundStart(offset int64) (int64, error) {
	first, _ := qu.bounds()
	for i := len(qu.files) - 1; i > 1; i-- {
		e, err := qu.entry(qu.files[i].base / queueUnitBytes)
		if err != nil {
			return 0, err
		}
		if e.valid() && !e.blank() && e.Offset < offset {
			return max(first, qu.files[i-1].base/queueUnitBytes), nil
		}
	}
	return first, nil
}
