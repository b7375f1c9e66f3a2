package remoting

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
)

const idleConnections = 10000

// raiseDescriptors lets this process open as many files as it may, which it
// returns.
func raiseDescriptors() (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, err
	}
	limit.Cur = limit.Max
	return int(min(limit.Max, 1<<30)), syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

// heapBytes is how many bytes are in use, garbage aside.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func TestTenThousandIdleConnectionsCostLittle(t *testing.T) {
	descriptors, err := raiseDescriptors()
	if err != nil {
		t.Fatal(err)
	}
	// A server leaves a quarter of them to others.
	idle := min(idleConnections, descriptors/4*3-1)
	if idle < 100 {
		t.Fatalf("this process may open %d files only, which shows nothing", descriptors)
	}
	s := listen(t, echo, ServerOptions{})
	c := dial(t, s, nil)
	ask(t, c, &Command{})
	goroutines, before := runtime.NumGoroutine(), heapBytes()

	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDials+"="+s.Addr().String(), fmt.Sprintf("%s=%d", childConnections, idle))
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		if err := child.Wait(); err != nil {
			t.Error(err)
		}
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "connected\n" {
		t.Fatalf("child says %q, %v", line, err)
	}
	until(t, "all are there", func() bool { return s.Connections() == idle+1 })
	each := (heapBytes() - before) / int64(idle)
	t.Logf("%d idle connections: %d bytes each, %d goroutines more", idle, each, runtime.NumGoroutine()-goroutines)
	if each > 2048 {
		t.Errorf("an idle connection costs %d bytes, want at most 2048", each)
	}
	if n := runtime.NumGoroutine() - goroutines; n > 20 {
		t.Errorf("%d goroutines more", n)
	}
	ask(t, c, &Command{})
	in.Close()
	until(t, "they are gone", func() bool { return s.Connections() == 1 })
	if left := heapBytes() - before; left > 4<<20 {
		t.Errorf("%d bytes are left of them", left)
	}
}
