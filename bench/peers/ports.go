package main

import (
	"net"
	"time"
)

// freePorts asks the kernel for ports that nobody listens on. Somebody may
// before they are used, which a start then says.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all at the end, so that no port is given twice
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

// dials tells whether somebody accepts connections.
func dials(addr string) (bool, error) {
	c, err := net.DialTimeout("tcp4", addr, time.Second)
	if err != nil {
		return false, err
	}
	c.Close()
	return true, nil
}
