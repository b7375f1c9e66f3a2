package mutants

// table is every mutant, those that take long last. Seeds are 1 and those behind
// it, so that a run is the same each time; golden scripts have none.
var table = []Mutant{
	{
		Name: "terms are told apart by their number alone",
		File: "transfer/epoch.go", Old: "return e.Number == o.Number && e.Start == o.Start && (e.ID == o.ID || e.ID == 0 || o.ID == 0)", New: "return e.Number == o.Number",
		Run: "TestStories", Seeds: 1,
	},
	{
		Name: "an older master is followed",
		File: "transfer/align.go", Old: "if last.Number > masters.Number {", New: "if last.Number > masters.Number+1000 {",
		Run: "TestStories", Seeds: 1,
	},
	{
		Name: "appends do not tell the window ahead where they write",
		File: "commitlog/append.go", Old: "l.window.claim(result.EndOffset)", New: "",
		Run: "TestAnyOptionsAndFaults", Seeds: 5,
	},
	{
		Name: "a replica does not tell the window ahead where it receives",
		File: "commitlog/reserve.go", Old: "l.window.claim(to)", New: "",
		Run: "TestAnyOptionsAndFaults", Seeds: 5,
	},
	{
		Name: "one kind's acknowledgement counts for the other",
		File: "transfer/quorum.go", Old: "ack = max(ack, m.acked[kind].Load())", New: "ack = max(ack, m.acked[Received].Load())",
		Run: "TestAnyOptionsAndFaults", Seeds: 5,
	},
	{
		Name: "one replica is enough where two were asked for",
		File: "transfer/quorum.go", Old: "return top[n-1]\n}", New: "return top[0]\n}",
		Run: "TestAnyOptionsAndFaults", Seeds: 5,
	},
	{
		Name: "connections of one replica count each",
		File: "transfer/quorum.go", Old: "if i := old.find(identity); i >= 0 {", New: "if i := old.find(identity); i >= len(old.replicas) {",
		Run: "TestAnyOptionsAndFaults", Seeds: 5,
	},
	{
		Name: "a replica acknowledges bytes that are not published",
		File: "transfer/follower.go", Old: "report = max(log.End, f.first)", New: "report = max(f.next, f.first)",
		Run: "TestAnyOptionsAndFaults", Seeds: 5,
	},
	{
		Name: "a wait that is late ends well",
		File: "transfer/pass.go", Old: "return Expired", New: "return Done",
		Run: "TestAnyOptionsAndFaults", Seeds: 15,
	},
	{
		Name: "a deadline is never looked at",
		File: "transfer/pass.go", Old: "case s.deadline.Load() <= int64(now):", New: "case s.deadline.Load() < 0:",
		Run: "TestAnyOptionsAndFaults", Seeds: 15,
	},
	{
		Name: "a wait is completed twice",
		File: "transfer/pass.go", Old: "w.Completed(r, o)\n", New: "w.Completed(r, o)\n\t\t\t\t\tw.Completed(r, o)\n",
		Run: "TestAnyOptionsAndFaults", Seeds: 5,
	},
	{
		Name: "the decoder forgets what it held when more than a unit comes",
		File: "transfer/decoder.go", Old: "if d.held == 0 && len(b) >= d.size {", New: "if len(b) >= d.size {",
		Run: "TestAnyOptionsAndFaults", Seeds: 5,
	},
	{
		Name: "a frame crosses a segment's border",
		File: "transfer/session.go", Old: "most := min(left, s.cfg.SegmentBytes-s.sent%s.cfg.SegmentBytes)", New: "most := left",
		Run: "TestAnyOptionsAndFaults", Seeds: 5,
	},
	{
		Name: "the flusher believes a sync that it did not make",
		File: "commitlog/flush.go", Old: "err := f.sync(s, from, to)", New: "var err error",
		Run: "TestAnyOptionsAndFaults", Seeds: 5,
	},
	{
		Name: "a new segment's name is not durable",
		File: "commitlog/roller.go", Old: "\t\terr = l.disk.SyncDir(l.dir)\n", New: "\t\terr = nil\n",
		Run: "TestAnyOptionsAndFaults", Seeds: 5,
	},
	{
		Name: "a record's checksum is not looked at",
		File: "commitlog/record.go", Old: "if crc && !h.crcHolds(b) {", New: "if crc && false {",
		Run: "TestReplicasSurviveBadDisks", Seeds: 5,
	},
	{
		Name: "a wait ends a little before its offset",
		File: "transfer/pass.go", Old: "case s.end <= offset:", New: "case s.end <= offset+100:",
		Run: "TestAnyOptionsAndFaults", Seeds: 40,
	},
	{
		Name: "more is noted as durable than is",
		File: "commitlog/keeper.go", Old: "Flushed: l.flusher.durable(),", New: "Flushed: l.DispatchedOffset(),",
		Run: "TestAnyOptionsAndFaults", Seeds: 10,
	},
	{
		Name: "epochs are read before they are durable",
		File: "commitlog/epochs.go", Old: "\tif err := k.saveEpochsLocked(list); err != nil {\n\t\treturn err\n\t}\n\tk.log.publishEpochs(list)", New: "\tk.log.publishEpochs(list)",
		Run: "TestAnyOptionsAndFaults", Seeds: 10,
	},
	{
		Name: "store times go back with the clock",
		File: "commitlog/append.go", Old: "max(now.ms, l.timestamp.Load())", New: "now.ms",
		Run: "TestAnyOptionsAndFaults", Seeds: 10,
	},
	{
		Name: "a failed sync is taken for a good one",
		File: "commitlog/flush.go", Old: "if err := file.file.Sync(); err != nil {\n\t\treturn err\n\t}", New: "_ = file.file.Sync()",
		Run: "TestReplicasSurviveBadDisks", Seeds: 15,
	},
	{
		Name: "a returning master keeps what nobody else has",
		File: "transfer/align.go", Old: "return min(epochEnd(mine, i, end), epochEnd(master.Epochs, j, master.Log.End)), nil", New: "return end, nil",
		Run: "TestExtendedReplicasFollowANewTerm", Seeds: 20,
	},
	{
		Name: "a slave that takes over keeps half a record",
		File: "commitlog/handover.go", Old: "if border < end {", New: "if border < end-1<<40 {",
		Run: "TestExtendedReplicasFollowAnotherMaster", Seeds: 40,
	},
	{
		Name: "what a master is known to have confirmed is cut",
		File: "transfer/align.go", Old: "case keep < own.Log.End && keep < confirmed:", New: "case keep < own.Log.End && confirmed < 0:",
		Run: "TestAnyOptionsAndFaults", Seeds: 40,
	},
	{
		Name: "a cut is not noted before it is made",
		File: "commitlog/truncate.go", Old: "\tif err := writeHint(l.disk, l.root, &noted); err != nil {\n\t\treturn err\n\t}\n\told := *l.list.Load()", New: "\told := *l.list.Load()",
		Run: "TestExtendedReplicasFollowANewTerm", Seeds: 80,
	},
	{
		Name: "the copy that replaces a cut segment is not durable",
		File: "commitlog/truncate.go", Old: "\tif err == nil {\n\t\terr = file.Sync()\n\t}\n\tif err = errors.Join(err, file.Close()); err == nil {", New: "\tif err = errors.Join(err, file.Close()); err == nil {",
		Run: "TestExtendedReplicasFollowANewTerm", Seeds: 40,
	},
	{
		Name: "the bytes that come again are not compared",
		File: "transfer/follower.go", Old: "if differsAt >= 0 {", New: "if differsAt > 1<<60 {",
		Run: "TestNoReplicaMixesTwoHistories", Seeds: 60,
	},
	{
		Name: "a replica's tail is not compared with the master's",
		File: "transfer/greeting.go", Old: "case h.TailFrom < h.Log.End && sum != h.TailSum:", New: "case h.TailFrom > h.Log.End && sum != h.TailSum:",
		Run: "TestAnyOptionsAndFaults", Seeds: 200,
	},
	{
		Name: "a term without a byte that the master has not is kept",
		File: "transfer/align.go", Old: "return n > 0 && own.Epochs[n-1].Start >= keep", New: "return n < 0 && own.Epochs[n-1].Start >= keep",
		Run: "TestAnyOptionsAndFaults", Seeds: 200,
	},
}
