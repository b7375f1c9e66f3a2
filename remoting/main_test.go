package remoting

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// childDials makes this test's process one that connects to an address so many
// times, and stays until its stdin ends.
const (
	childDials       = "REMOTING_TEST_DIALS"
	childConnections = "REMOTING_TEST_CONNECTIONS"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(childDials); addr != "" {
		n, err := strconv.Atoi(os.Getenv(childConnections))
		if err == nil {
			err = holdConnections(addr, n)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// gnet starts the goroutines of its worker pool when it is imported.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// holdConnections opens n connections, says so on stdout, and holds them.
func holdConnections(addr string, n int) error {
	if _, err := raiseDescriptors(); err != nil {
		return err
	}
	for range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		defer c.Close()
	}
	fmt.Println("connected")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}
