package transfer

import "slices"

// Align decides how a replica follows a master, from what both said of
// themselves: keep is where the replica's log has to end before it goes on, its
// own end if nothing has to be cut. confirmed is up to where the replica knows
// puts to be complete. The error is a *RefusalError that names the offsets; the
// replica keeps all it has then.
//
// What is cut was written in a term that the master has not got, by a master
// that was replaced. Histories of which none is the newer one are never cut:
// the same term number with another id, or no term in common.
//
// RocketMQ: EpochFileCache.findConsistentPoint, which trusts the number alone.
func Align(own, master Hello, confirmed int64) (keep int64, err error) {
	switch {
	case version(own, master) == 0:
		return 0, refuse(RefusedVersion, "the master speaks versions %d to %d of the extended protocol, we speak %d to %d",
			master.VersionMin, master.VersionMax, own.VersionMin, own.VersionMax)
	case !sameCluster(own.ClusterID, master.ClusterID):
		return 0, refuse(RefusedCluster, "the master belongs to cluster %q, our store to %q", master.ClusterID, own.ClusterID)
	case own.ReplicaID == master.ReplicaID:
		return 0, refuse(RefusedCluster, "the master has our own replica id %q: it is this node, or a copy of its store", own.ReplicaID)
	case own.Log.Empty():
		return own.Log.End, nil
	case own.SegmentBytes != master.SegmentBytes:
		return 0, refuse(RefusedSegments, "the master has segments of %d bytes, our store of %d", master.SegmentBytes, own.SegmentBytes)
	case master.Log.Empty():
		return 0, refuse(RefusedBehind, "the master's log is empty, ours ends at %d", own.Log.End)
	}
	// A term without records says nothing of the bytes.
	mine := slices.Clone(own.Epochs)
	for len(mine) > 0 && mine[len(mine)-1].Start >= own.Log.End {
		mine = mine[:len(mine)-1]
	}
	keep, err = commonEnd(mine, own.Log.End, master)
	switch {
	case err != nil:
		return 0, err
	case keep < own.Log.End && keep < confirmed:
		return 0, refuse(RefusedBehind, "the master's history leaves ours at offset %d, and we know puts up to %d to be complete", keep, confirmed)
	case keep < own.Log.Min:
		return 0, refuse(RefusedDiverged, "the master's history leaves ours at offset %d, before our first byte at %d", keep, own.Log.Min)
	case keep < master.Log.Min:
		return 0, refuse(RefusedRange, "we need offset %d next, the master holds %d to %d", keep, master.Log.Min, master.Log.End)
	}
	return keep, nil
}

// Stale tells whether the replica's last term has no bytes below keep and is not
// the master's. It has to go, too: it would name bytes of the master's.
func Stale(own, master Hello, keep int64) bool {
	n := len(own.Epochs)
	return n > 0 && own.Epochs[n-1].Start >= keep && !slices.Contains(master.Epochs, own.Epochs[n-1])
}

// commonEnd returns the end of what two logs have in common, by their terms.
func commonEnd(mine []Epoch, end int64, master Hello) (int64, error) {
	if len(mine) == 0 || len(master.Epochs) == 0 {
		// From before there were terms, or from RocketMQ: only the bytes tell,
		// and they are compared next.
		if end > master.Log.End {
			return 0, refuse(RefusedBehind, "the master's log ends at %d, ours at %d, and there are no epochs to tell which is the newer", master.Log.End, end)
		}
		return end, nil
	}
	last, masters := mine[len(mine)-1], master.Epochs[len(master.Epochs)-1]
	if last.Number > masters.Number {
		return 0, refuse(RefusedBehind, "the master's last epoch is %d, ours is %d: it is an older master", masters.Number, last.Number)
	}
	for i := len(mine) - 1; i >= 0; i-- {
		j := slices.IndexFunc(master.Epochs, func(e Epoch) bool { return e.Number == mine[i].Number })
		if j < 0 {
			continue
		}
		if !mine[i].same(master.Epochs[j]) {
			return 0, refuse(RefusedDiverged, "epoch %d is another one here (id %016x from offset %d) and on the master (id %016x from offset %d): two masters wrote from offset %d",
				mine[i].Number, mine[i].ID, mine[i].Start, master.Epochs[j].ID, master.Epochs[j].Start, min(mine[i].Start, master.Epochs[j].Start))
		}
		if j == len(master.Epochs)-1 && end > master.Log.End {
			// Nobody wrote after our term: it has not got all of it yet.
			return 0, refuse(RefusedBehind, "the master's log ends at %d, ours at %d, both in epoch %d: it is behind us", master.Log.End, end, masters.Number)
		}
		return min(epochEnd(mine, i, end), epochEnd(master.Epochs, j, master.Log.End)), nil
	}
	return 0, refuse(RefusedDiverged, "no epoch of ours (%d to %d) is one of the master's (%d to %d): two histories from offset %d",
		mine[0].Number, last.Number, master.Epochs[0].Number, masters.Number, min(mine[0].Start, master.Epochs[0].Start))
}

func epochEnd(list []Epoch, i int, end int64) int64 {
	if i+1 < len(list) {
		return list[i+1].Start
	}
	return end
}
