package main

import (
	"strings"
	"testing"

	"github.com/haengine/haengine/engine"
)

func TestRemedy(t *testing.T) {
	slave := &engine.MasterStatus{Address: "m:10912"}
	repair := "haengine repair --store '/var/lib/my store' --from m:10912"
	for cause, want := range map[string]string{
		"diverged": repair + "; if that says that the master is an older one", "behind": "haengine promote --admin 127.0.0.1:1;", "damaged": repair,
		"range": "haengine reseed --store '/var/lib/my store' --from m:10912", "replaced": "--replica-id", "refused": "master's log",
		"space": "free some space in the file system of '/var/lib/my store'",
	} {
		s := engine.Status{Role: engine.Slave, Master: slave, MaxOffset: 1, Trouble: &engine.Trouble{Cause: cause}}
		if got := (remedy{store: "/var/lib/my store", admin: "127.0.0.1:1"}).of(s); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q in it", cause, got, want)
		}
	}
	at := int64(4096)
	plain := engine.Status{Master: &engine.MasterStatus{Address: "m:10912", Mode: "plain"}, MaxOffset: 1, Trouble: &engine.Trouble{Cause: "damaged", Offset: &at}}
	if got := (remedy{store: "s"}).of(plain); !strings.HasSuffix(got, "haengine repair --store s --truncate-at 4096") {
		t.Errorf("a slave of RocketMQ's: %q", got)
	}
	plain.Trouble.Cause = "diverged"
	if got := (remedy{store: "s"}).of(plain); strings.Contains(got, "--new-epoch") {
		t.Errorf("a slave of RocketMQ's is told what its master cannot do: %q", got)
	}
	for secretFile, want := range map[string]string{"": "--ha-secret-file FILE", "/etc/s": "one and the same secret"} {
		s := engine.Status{Role: engine.Slave, Master: slave, Trouble: &engine.Trouble{Cause: "auth"}}
		if got := (remedy{store: "s", secretFile: secretFile}).of(s); !strings.Contains(got, want) {
			t.Errorf("auth with secret %q: %q, want %q in it", secretFile, got, want)
		}
		s.Trouble.Cause = "diverged"
		if got := (remedy{store: "s", secretFile: secretFile}).of(s); strings.Contains(got, "--ha-secret-file /etc/s") != (secretFile != "") {
			t.Errorf("diverged with secret %q: %q", secretFile, got)
		}
	}
	s := engine.Status{Trouble: &engine.Trouble{Cause: "damaged"}}
	if got := (remedy{store: "s"}).of(s); !strings.HasSuffix(got, "haengine repair --store s --from HOST:PORT") || !strings.Contains(got, "promote a replica") {
		t.Errorf("a damaged master: %q", got)
	}
}

func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{"": "''", "a-b_c./d:1": "a-b_c./d:1", "a b": "'a b'", "it's": `'it'\''s'`, "$HOME": "'$HOME'"} {
		if got := shellWord(word); got != want {
			t.Errorf("%q is %s, want %s", word, got, want)
		}
	}
}
