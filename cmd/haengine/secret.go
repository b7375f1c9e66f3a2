package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/haengine/haengine/engine"
	"github.com/spf13/cobra"
)

// secretBytesMax bounds what is read of a secret's file: a wrong name may be a
// device, or a log.
const secretBytesMax = 4096

// readSecret reads a shared secret: a file's contents without the white space
// around them. open tells that others than the owner and the group may read it.
func readSecret(path string) (secret []byte, open bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, false, fmt.Errorf("the secret cannot be read: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, false, fmt.Errorf("the secret cannot be read: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, secretBytesMax+1))
	if err != nil {
		return nil, false, fmt.Errorf("the secret cannot be read: %w", err)
	}
	secret = bytes.TrimSpace(b)
	switch {
	case len(b) > secretBytesMax:
		return nil, false, fmt.Errorf("%s holds more than %d bytes; is it the file of the secret?", path, secretBytesMax)
	case len(secret) < engine.SecretBytesMin:
		return nil, false, fmt.Errorf("%s holds %d bytes without the white space around them, want at least %d; this makes one: head -c 32 /dev/urandom | base64 > %s",
			path, len(secret), engine.SecretBytesMin, shellWord(path))
	}
	return secret, info.Mode().Perm()&0o004 != 0, nil
}

// openSecretText warns of a secret that is none.
func openSecretText(path string) string {
	return fmt.Sprintf("every user of this machine can read the secret in %s; chmod o-r %s", path, shellWord(path))
}

// secretFlag is the --ha-secret-file of a command that connects to a running
// node.
type secretFlag struct {
	cmd  *cobra.Command
	path string // empty: no secret
}

func addSecretFlag(cmd *cobra.Command) *secretFlag {
	f := &secretFlag{cmd: cmd}
	cmd.Flags().StringVar(&f.path, "ha-secret-file", "", "file with the secret that the node was given as its --ha-secret-file")
	return f
}

// read gives the secret, nil if there is none.
func (f *secretFlag) read() ([]byte, error) {
	if f.path == "" {
		return nil, nil
	}
	secret, open, err := readSecret(f.path)
	if err != nil {
		return nil, usagef(f.cmd, "--ha-secret-file: %v", err)
	}
	if open {
		fmt.Fprintln(f.cmd.ErrOrStderr(), "warning:", openSecretText(f.path))
	}
	return secret, nil
}

// secretArgs is what a command has to be given where there is a secret.
func secretArgs(path string) string {
	if path == "" {
		return ""
	}
	return " --ha-secret-file " + shellWord(path)
}
