package engine

// State is what a node can do now.
type State uint8

// StateRecovering: Open has not returned. StateServing: all is well.
// StateReadOnly: damage or a failed fsync; puts are refused until a restart.
// StateFenced: a master without the lease that it needs; see Renew.
// StateStopping: Close was called.
const (
	StateRecovering State = iota
	StateServing
	StateReadOnly
	StateFenced
	StateStopping
)

var stateNames = names{"recovering", "serving", "read-only", "fenced", "stopping"}

// String is the state's name in status and metrics.
func (s State) String() string { return stateNames.of(int(s)) }

// MarshalText writes the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Status is a node at one moment. Its JSON is the answer of /status.
type Status struct {
	Role            Role              `json:"role"`
	State           State             `json:"state"`
	Reason          string            `json:"reason,omitempty"` // a sentence: why it is not serving
	Epoch           int32             `json:"epoch"`            // the last term that the log has bytes of, or may get; 0: none
	MinOffset       int64             `json:"min_offset"`
	MaxOffset       int64             `json:"max_offset"`
	FlushedOffset   int64             `json:"flushed_offset"`
	ConfirmedOffset int64             `json:"confirmed_offset"`
	QueuedOffset    int64             `json:"queued_offset"` // through which all records are in their consume queues
	SegmentBytes    int64             `json:"segment_bytes"`
	Segments        int               `json:"segments"`
	Allocation      string            `json:"allocation"` // how segments get their space: fallocate, written zeros, sparse
	Waiters         int               `json:"waiters"`
	HAListen        string            `json:"ha_listen,omitempty"`
	HASecret        bool              `json:"ha_secret"` // only peers that prove to know the secret are served and followed
	ClusterID       string            `json:"cluster_id"`
	ReplicaID       string            `json:"replica_id"`
	Replicas        []ReplicaStatus   `json:"replicas"`
	Departed        []Departed        `json:"departed_replicas,omitempty"`
	Master          *MasterStatus     `json:"master,omitempty"`
	Trouble         *Trouble          `json:"trouble,omitempty"`
	Comparison      *ComparisonStatus `json:"comparison,omitempty"` // on a slave that compares its log with its master's
}

// Trouble is what keeps a node from its job until somebody acts.
type Trouble struct {
	// Cause is one word. Of a slave: cluster, segments, range, diverged, behind,
	// replaced, full, protocol, version, auth or damaged, as one end refused the other.
	// Of any node: damaged, bytes are not what they were; disk, an fsync failed.
	// Of a master: lease, it has none.
	Cause  string `json:"cause"`
	Reason string `json:"reason"`           // a sentence with the offsets
	Offset *int64 `json:"offset,omitempty"` // of the first byte that is damaged, or not the master's, where that is known
	Remedy string `json:"remedy,omitempty"` // as Options.Remedy says
}

// Departed is a replica that left because it, or its copy, is not well. It is
// forgotten when the replica joins again.
type Departed struct {
	Address       string `json:"address"`
	ReplicaID     string `json:"replica_id,omitempty"`
	Reason        string `json:"reason"`
	AckedOffset   int64  `json:"acked_offset"`
	DamagedOffset *int64 `json:"damaged_offset,omitempty"`
	Time          int64  `json:"time_ms"` // since 1970
}

// ReplicaStatus is a connected peer that made a valid first report.
type ReplicaStatus struct {
	Address        string  `json:"address"`
	ReplicaID      string  `json:"replica_id"`
	Mode           string  `json:"mode"`
	AckedOffset    int64   `json:"acked_offset"`             // received there
	FlushedOffset  *int64  `json:"flushed_offset"`           // checked and durable there; null in plain mode
	DamagedOffset  *int64  `json:"damaged_offset,omitempty"` // the first byte that was found to be wrong there
	LagBytes       int64   `json:"lag_bytes"`
	LagSeconds     float64 `json:"lag_seconds"` // since it last held all that there was; 0 when it does
	BytesPerSecond float64 `json:"bytes_per_second"`
	Phase          string  `json:"phase"` // live or catch-up; see Pace
	Pace                   // the limits that hold for it
	InSync         bool    `json:"in_sync"`
	Reason         string  `json:"reason"`
}

// MasterStatus is the master as its slave sees it.
type MasterStatus struct {
	Address    string   `json:"address"`
	State      string   `json:"state"`      // connecting, negotiating, transferring, stalled, diverged, refused
	Mode       string   `json:"mode"`       // extended or plain; empty: not known
	MaxOffset  *int64   `json:"max_offset"` // null in plain mode, as both lags: the wire does not carry it
	LagBytes   *int64   `json:"lag_bytes"`
	LagSeconds *float64 `json:"lag_seconds"`
	LastError  string   `json:"last_error"`
}
