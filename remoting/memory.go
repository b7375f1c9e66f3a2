package remoting

import (
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// nearShare is how much of a machine's memory RocketMQ's broker thinks to hold the
// end of the log, in percent (accessMessageInMemoryMaxRatio).
const nearShare = 40

// nearBytes is that share of the memory that this process may have, in bytes.
func nearBytes() int64 { return machineMemory() / 100 * nearShare }

// machineMemory is the machine's memory, or the limit of the process's control
// group if that is less.
func machineMemory() int64 {
	most := int64(math.MaxInt64)
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err == nil {
		most = int64(info.Totalram) * int64(info.Unit)
	}
	text, err := os.ReadFile("/sys/fs/cgroup/memory.max") // "max": no limit
	if n, bad := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && bad == nil {
		most = min(most, n)
	}
	return most
}
