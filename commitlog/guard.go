package commitlog

import (
	"fmt"
	"runtime/debug"
	"unsafe"
)

// mapping is a mapped file, with what an error about it has to name. It is the
// only thing in this package that touches mapped memory, and it does nothing
// there but copy and clear, each under a guard that turns the
// kernel's SIGBUS into a *CorruptError: the file was cut by somebody, a sparse
// file met a full disk, or a page could not be read. Without it one short file
// would kill the program that embeds us.
//
// Methods may overlap as the bytes they touch do not.
type mapping struct {
	path string
	base int64 // what errors call data[0]: an offset in the log, or a position in a queue
	data []byte
}

// write copies src to position at of the mapping.
func (m *mapping) write(at int64, src []byte) (err error) {
	dst := m.data[at : at+int64(len(src))]
	old := debug.SetPanicOnFault(true)
	defer m.caught(old, &err)
	copy(dst, src)
	return nil
}

// read copies from position at of the mapping to all of dst.
func (m *mapping) read(at int64, dst []byte) (err error) {
	src := m.data[at : at+int64(len(dst))]
	old := debug.SetPanicOnFault(true)
	defer m.caught(old, &err)
	copy(dst, src)
	return nil
}

// zero clears n bytes from position at.
func (m *mapping) zero(at, n int64) (err error) {
	dst := m.data[at : at+n]
	old := debug.SetPanicOnFault(true)
	defer m.caught(old, &err)
	clear(dst)
	return nil
}

// caught ends a guarded access: a fault inside the mapping becomes an error,
// any other panic goes on. Deferred directly, as recover asks for.
func (m *mapping) caught(old bool, err *error) {
	debug.SetPanicOnFault(old)
	r := recover()
	if r == nil {
		return
	}
	fault, ok := r.(interface{ Addr() uintptr })
	if !ok {
		panic(r)
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(m.data)))
	at := int64(fault.Addr()) - int64(start)
	if at < 0 || at >= int64(len(m.data)) {
		panic(r)
	}
	*err = m.faultAt(at)
}

// faultAt is the error for a fault at a position of the mapping.
func (m *mapping) faultAt(at int64) *CorruptError {
	return &CorruptError{
		Path: m.path, Offset: m.base + at, Kind: KindFault,
		Detail: fmt.Sprintf("byte %d of the file cannot be reached; it was cut, or the disk failed", at),
	}
}
