package engine

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/haengine/haengine/commitlog"
)

// identityFile stands at the store's root beside RocketMQ's files, which do not
// mind it.
const identityFile = "haengine.identity"

// identity is who a store is: of which cluster, and which replica.
type identity struct {
	ClusterID string `json:"cluster_id"`
	ReplicaID string `json:"replica_id"`
}

// ErrOtherCluster means that the store belongs to another cluster than asked.
var ErrOtherCluster = errors.New("store belongs to another cluster")

// openIdentity reads the store's identity, or makes one at its first open.
func (e *Engine) openIdentity() (identity, error) {
	disk := e.opts.Disk
	if disk == nil {
		disk = commitlog.OSDisk()
	}
	path := filepath.Join(e.opts.Store, identityFile)
	var id identity
	data, err := disk.ReadFile(path)
	switch {
	case err == nil:
		if err := json.Unmarshal(data, &id); err != nil || id.ReplicaID == "" {
			return id, fmt.Errorf("identity file %s is not readable JSON with a replica_id; remove it to get a new identity: %w", path, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return id, fmt.Errorf("read identity: %w", err)
	}
	if want := e.opts.ClusterID; want != "" && id.ClusterID != "" && want != id.ClusterID {
		return id, fmt.Errorf("%w: %s says %q, asked for %q", ErrOtherCluster, path, id.ClusterID, want)
	}
	before := id
	if id.ReplicaID == "" {
		id.ReplicaID = rand.Text()
	}
	if e.opts.ReplicaID != "" {
		id.ReplicaID = e.opts.ReplicaID
	}
	if id.ClusterID == "" {
		id.ClusterID = e.opts.ClusterID
	}
	if id == before {
		return id, nil
	}
	data, err = json.Marshal(id)
	if err != nil {
		return id, err
	}
	if err := disk.WriteFileAtomic(path, append(data, '\n')); err != nil {
		return id, fmt.Errorf("write identity: %w", err)
	}
	return id, nil
}
