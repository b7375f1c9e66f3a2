package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func writeSecret(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSecretsAreReadFromFiles(t *testing.T) {
	path := writeSecret(t, " \t0123456789 abcdef\r\n\n", 0o640)
	if secret, open, err := readSecret(path); err != nil || open || string(secret) != "0123456789 abcdef" {
		t.Errorf("%q, %v, %v", secret, open, err)
	}
	if _, open, err := readSecret(writeSecret(t, strings.Repeat("x", 4096), 0o644)); err != nil || !open {
		t.Errorf("a secret that all can read: %v, %v", open, err)
	}
	for says, path := range map[string]string{
		"want at least 16":      writeSecret(t, "0123456789abcde\n\n\n\n", 0o600),
		"holds 0 bytes":         writeSecret(t, "\n", 0o600),
		"more than 4096 bytes":  "/dev/zero",
		"no such file":          path + "x",
		"is a directory":        t.TempDir(),
		"urandom | base64 > '/": writeSecret(t, "", 0o600),
	} {
		if secret, _, err := readSecret(path); err == nil || len(secret) > 0 || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %q, %v", says, secret, err)
		}
	}
}

// A wrong secret is a wrong command line, and nothing is opened.
func TestAWrongSecretFileEndsWithExitCode2(t *testing.T) {
	short := writeSecret(t, "short", 0o600)
	store := filepath.Join(t.TempDir(), "store")
	mustContain(t, expect(t, exitUsage, "serve", "--store", store, "--ha-secret-file", short, "--segment-bytes", "1").stderr,
		"--ha-secret-file: "+short+" holds 5 bytes", "want at least 16", "--segment-bytes", "Try: haengine help serve")
	if _, err := os.Stat(store); err == nil {
		t.Error("the store was made")
	}
	good := writeSecret(t, "0123456789abcdef", 0o600)
	mustContain(t, expect(t, exitUsage, "serve", "--store", store, "--ha-secret-file", good, "--wire", "plain").stderr, "--ha-secret-file is given, but wire is plain")
	for _, args := range [][]string{{"log", "diff", "--with", "a:1"}, {"repair", "--from", "a:1"}, {"reseed", "--from", "a:1"}} {
		mustContain(t, expect(t, exitUsage, append(args, "--store", store, "--ha-secret-file", short)...).stderr, "--ha-secret-file: ", "want at least 16")
	}
	open := writeSecret(t, "0123456789abcdef", 0o644)
	mustContain(t, expect(t, exitFailed, "reseed", "--store", store, "--from", "a:1", "--ha-secret-file", open).stderr, "warning: every user of this machine can read the secret in "+open)
}

func TestServeTellsOfItsSecret(t *testing.T) {
	n := startNode(t, "--ha-listen", "127.0.0.1:0", "--ha-secret-file", writeSecret(t, "0123456789abcdef", 0o604))
	if !n.status(t).HASecret {
		t.Error("the status does not tell of it")
	}
	n.stopCleanly(t)
}
