package main

import (
	"fmt"
	"strings"

	"github.com/haengine/haengine/engine"
)

// remedy tells what an operator can do about a node's trouble: the command to
// run, as a shell takes it, and what it decides.
type remedy struct {
	store string
	admin string // empty: no admin address

	secretFile string // empty: no secret
}

func (r remedy) of(s engine.Status) string {
	master := "HOST:PORT" // of a node that has the bytes
	if s.Master != nil {
		master = s.Master.Address
	}
	repair := fmt.Sprintf("haengine repair --store %s --from %s%s", shellWord(r.store), shellWord(master), secretArgs(r.secretFile))
	reseed := fmt.Sprintf("haengine reseed --store %s --from %s%s", shellWord(r.store), shellWord(master), secretArgs(r.secretFile))
	newer := "; if that says that the master is an older one, or in no newer epoch: have it begin one that is above this node's, with haengine promote --new-epoch --role ROLE, its own"
	if s.Master != nil && s.Master.Mode == "plain" { // which gives no checksums
		newer = ""
		repair, reseed = "move the store aside and start it empty", "move the store aside and start it empty"
		if at := s.Trouble.Offset; at != nil {
			repair = fmt.Sprintf("haengine repair --store %s --truncate-at %d", shellWord(r.store), *at)
		}
	}
	promote := "haengine promote"
	if r.admin != "" && r.admin != defaultAdminListen {
		promote += " --admin " + shellWord(r.admin)
	}
	if empty := s.MaxOffset == s.MinOffset; empty && (s.Trouble.Cause == "range" || s.Trouble.Cause == "protocol") {
		return "start this node with another --from: first begins with what its master has"
	}
	switch s.Trouble.Cause {
	case "disk":
		return "look at the disk, then restart this node: what it could not make durable is read again"
	case "space":
		return "free some space in the file system of " + shellWord(r.store) + "; this node goes on by itself then"
	case "damaged":
		if s.Master != nil {
			return "stop this node, then: " + repair
		}
		return "promote a replica, stop this node, then, with that replica's address: " + repair
	case "diverged":
		return "stop this node, then: " + repair + newer
	case "range":
		return "stop this node, then, to begin with what its master still has: " + reseed
	case "behind":
		return "if this node's log is the one to keep: " + promote + "; if the master's is: stop this node, then: " + repair + newer
	case "cluster":
		return "give this node a master of its own cluster, or, if it is a copy that has its master's replica id, another --replica-id; to leave its cluster: stop it, remove haengine.identity from its store, then: " + reseed
	case "segments":
		return "stop this node, then, to begin again with the master's segment size, which a RocketMQ master's slave has to be given with --segment-bytes: " + reseed
	case "replaced":
		return "two nodes have one replica id: start one of them with another --replica-id"
	case "full":
		return "stop replicas that are not needed, or let this one follow another replica"
	case "auth":
		if r.secretFile == "" {
			return "start this node with its master's secret: --ha-secret-file FILE"
		}
		return "start this node and its master with one and the same secret in the files of --ha-secret-file; a RocketMQ master can only be followed without"
	case "version":
		return "upgrade the older of the two nodes, or start this one with --wire plain"
	}
	return "look at the master's log for why it closed the connection; its address may be another service's"
}

// shellWord quotes a word that a shell would take apart.
func shellWord(s string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+,=", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !safe(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
