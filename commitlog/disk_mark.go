package commitlog

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mark tells a directory from its copies: two marks that differ are not of the
// same directory. It stays what it is when the directory is renamed, the file
// system mounted again, or the machine started again. The reverse does not
// hold: who copies the whole file system below the files (an image of the disk)
// copies the mark. The zero Mark says nothing.
type Mark struct {
	Inode     uint64 `json:"inode,omitempty"`     // 0: the file system may number it otherwise at its next mount
	Born      string `json:"born,omitempty"`      // birth time in RFC 3339; empty: not kept
	Volume    string `json:"volume,omitempty"`    // the file system's UUID in hexadecimal; empty: not told
	Subvolume uint64 `json:"subvolume,omitempty"` // 0: there are none, or not told
}

// Differs tells that the marks are of two directories. What one of them leaves
// out is not compared: another kernel may tell more or less of the same
// directory.
func (m Mark) Differs(from Mark) bool {
	return both(m.Inode, from.Inode) || both(m.Born, from.Born) ||
		both(m.Volume, from.Volume) || both(m.Subvolume, from.Subvolume)
}

// both tells that two values are known and not the same.
func both[T comparable](a, b T) bool {
	var unknown T
	return a != unknown && b != unknown && a != b
}

// lasting is what a kind of file system keeps on its disk beside the birth
// time. Elsewhere numbers may be made up at each mount, and a restart would look
// like a copy: an overlay over several file systems does so with inodes, as
// FUSE and FAT may, and a btrfs that is a clone of a mounted one with its UUID.
// The device number and statfs's f_fsid, which holds it on some, are used
// nowhere: a device has another number when disks come up in another order.
type lasting struct{ inode, volume bool }

var lastingOf = map[uint32]lasting{
	unix.EXT4_SUPER_MAGIC:  {inode: true, volume: true}, // ext2 and ext3, too
	unix.XFS_SUPER_MAGIC:   {inode: true, volume: true},
	unix.F2FS_SUPER_MAGIC:  {inode: true, volume: true},
	unix.BTRFS_SUPER_MAGIC: {inode: true},
	unix.TMPFS_MAGIC:       {inode: true},
}

// Mark implements [Disk]. The inode is not enough: a mount point's is 2 on
// every ext4. Nor is the birth time, since two file systems may be made, and
// two directories, within one tick of the clock. A snapshot of a btrfs
// subvolume has both of them again, and another subvolume number.
func (d osDisk) Mark(dir string) (Mark, error) {
	f, err := d.open(dir, os.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return Mark{}, err
	}
	defer f.Close()
	var system unix.Statfs_t
	if err := retryPath("statfs", dir, func() error { return unix.Fstatfs(f.fd, &system) }); err != nil {
		return Mark{}, err
	}
	var st unix.Statx_t
	if err := retryPath("statx", dir, func() error {
		return unix.Statx(f.fd, "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME|unix.STATX_SUBVOL, &st)
	}); err != nil {
		return Mark{}, err
	}
	keeps := lastingOf[uint32(system.Type)]
	m := markOf(keeps, &st)
	if m == (Mark{}) {
		return m, &fs.PathError{Op: "mark", Path: dir, Err: errors.ErrUnsupported}
	}
	if keeps.volume {
		m.Volume = volumeUUID(f.fd)
	}
	return m, nil
}

// markOf takes from statx's answer what is told and lasts.
func markOf(keeps lasting, st *unix.Statx_t) Mark {
	var m Mark
	if keeps.inode && st.Mask&unix.STATX_INO != 0 {
		m.Inode = st.Ino
	}
	// A birth at the epoch is an inode that was made without one.
	if born := st.Btime; st.Mask&unix.STATX_BTIME != 0 && (born.Sec != 0 || born.Nsec != 0) {
		m.Born = time.Unix(born.Sec, int64(born.Nsec)).UTC().Format(time.RFC3339Nano)
	}
	if st.Mask&unix.STATX_SUBVOL != 0 {
		m.Subvolume = st.Subvol
	}
	return m
}

// volumeUUID asks for a file system's UUID; empty: a kernel before 6.9, or it
// has none.
func volumeUUID(fd int) string {
	const getUUID = 0x80111500 // FS_IOC_GETFSUUID where a read ioctl has bit 31
	var answer struct {
		length uint8
		uuid   [16]byte
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), getUUID, uintptr(unsafe.Pointer(&answer)))
	if errno != 0 || answer.uuid == [16]byte{} {
		return ""
	}
	return hex.EncodeToString(answer.uuid[:min(int(answer.length), len(answer.uuid))])
}

// Mark implements [Disk].
func (t *Twin) Mark(dir string) (Mark, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.faultLocked("mark", dir); err != nil {
		return Mark{}, err
	}
	n, err := t.findLocked("mark", dir)
	if err != nil {
		return Mark{}, err
	}
	if !n.dir {
		return Mark{}, &fs.PathError{Op: "mark", Path: dir, Err: syscall.ENOTDIR}
	}
	return Mark{Inode: n.inode, Volume: "twin"}, nil
}

// CopyTree copies a directory and all below it to a new name, as cp -a does
// beside running nodes: bytes as they are just then, other inodes, no locks.
// The copy is durable. It counts as no operation.
func (t *Twin) CopyTree(from, to string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.findLocked("copy", from); err != nil {
		return err
	}
	from, to = cleaned(from), cleaned(to)
	if t.live[to] != nil {
		return &fs.PathError{Op: "copy", Path: to, Err: fs.ErrExist}
	}
	for _, path := range sortedKeys(t.live) {
		below, ok := strings.CutPrefix(path, from)
		if !ok || below != "" && below[0] != '/' {
			continue
		}
		n := t.live[path]
		c := &twinNode{mtime: n.mtime, data: unseen(n.data)}
		if n.dir {
			c = t.newDirLocked()
		}
		c.stable = unseen(c.data)
		t.live[to+below], t.durable[to+below] = c, c
	}
	return nil
}

// newDirLocked makes a directory that has no name yet.
func (t *Twin) newDirLocked() *twinNode {
	t.inodes++
	return &twinNode{dir: true, mtime: t.clock, inode: t.inodes}
}
