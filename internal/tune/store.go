package tune

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Store is the filesystem that a store is on, or would be on.
type Store struct {
	Directory  string `json:"directory"` // that is there: the store's own, or the nearest above
	Exists     bool   `json:"exists"`    // there is a log
	Segments   int    `json:"segments"`  // mapped by a node
	QueueFiles int    `json:"queue_files"`
	Filesystem string `json:"filesystem"` // ext4, xfs, overlay, …
	MountPoint string `json:"mount_point"`
	Options    string `json:"mount_options"` // of the mount and of the filesystem
	Source     string `json:"source"`        // the device, as mounted
	Total      *int64 `json:"total_bytes"`
	Free       *int64 `json:"free_bytes"` // for this user

	Device     string `json:"device"` // the whole block device; empty: none, or not seen
	Scheduler  string `json:"scheduler"`
	Rotational *bool  `json:"rotational"`
	WriteCache string `json:"write_cache"` // write back: a sync has to flush it
	ReadAhead  *int64 `json:"read_ahead_kb"`
}

// network filesystems, whose syncs and locks are another machine's.
var networkFilesystems = []string{"nfs", "nfs4", "cifs", "smb3", "ceph", "glusterfs", "fuse.sshfs", "9p"}

// option tells whether the filesystem is mounted with one of these.
func (s Store) option(names ...string) string {
	for _, o := range strings.Split(s.Options, ",") {
		for _, name := range names {
			if o == name {
				return o
			}
		}
	}
	return ""
}

// mount is a line of mountinfo.
type mount struct {
	device, at, options, kind, source, superOptions string
}

func (l *looker) mounts() (all []mount) {
	for line := range strings.Lines(l.text("proc/self/mountinfo")) {
		before, after, ok := strings.Cut(line, " - ")
		a, b := strings.Fields(before), strings.Fields(after)
		if !ok || len(a) < 6 || len(b) < 2 {
			continue
		}
		m := mount{device: a[2], at: unescape(a[4]), options: a[5], kind: b[0], source: unescape(b[1])}
		if len(b) > 2 {
			m.superOptions = b[2]
		}
		all = append(all, m)
	}
	return all
}

// unescape undoes what the kernel writes for blanks in a path.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func (l *looker) store(dir string) {
	s := &l.seen.Store
	s.Directory = l.nearest(dir)
	l.files(dir)
	var on *mount
	all := l.mounts()
	for i, m := range all { // the last of the longest hides the others
		if within(s.Directory, m.at) && (on == nil || len(m.at) >= len(on.at)) {
			on = &all[i]
		}
	}
	if on == nil {
		l.unseen("the filesystem of %s: /proc/self/mountinfo does not tell", s.Directory)
	} else {
		s.Filesystem, s.MountPoint, s.Source = on.kind, on.at, on.source
		s.Options = strings.Trim(on.options+","+on.superOptions, ",")
		l.device(*on)
	}
	total, free, err := l.system.Space(s.Directory)
	if err != nil {
		l.unseen("free space of %s: %v", s.Directory, err)
		return
	}
	s.Total, s.Free = &total, &free
}

// nearest is the deepest directory of a path that is there, links followed.
func (l *looker) nearest(dir string) string {
	for ; ; dir = filepath.Dir(dir) {
		if found, err := filepath.EvalSymlinks(filepath.Join(l.root, dir)); err == nil {
			return filepath.Clean(l.without(found))
		}
		if dir == "/" || dir == "." {
			return dir
		}
	}
}

func within(path, dir string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}

var segmentName = regexp.MustCompile(`^[0-9]{20}$`)

// files counts what a node may have open.
func (l *looker) files(dir string) {
	s := &l.seen.Store
	count := func(pattern string) (n int) {
		files, err := filepath.Glob(filepath.Join(l.root, dir, pattern))
		if err != nil {
			return 0 // a pattern of ours is well-formed, a name in dir may not be
		}
		for _, f := range files {
			if segmentName.MatchString(filepath.Base(f)) {
				n++
			}
		}
		return n
	}
	s.Segments = count("commitlog/*")
	s.Exists = s.Segments > 0
	s.QueueFiles = count("consumequeue/*/*/*")
}

// device finds the whole disk below a mount.
func (l *looker) device(m mount) {
	s := &l.seen.Store
	at := ""
	for _, p := range []string{"sys/dev/block/" + m.device, "sys/class/block/" + filepath.Base(m.source)} {
		found, err := filepath.EvalSymlinks(filepath.Join(l.root, p))
		if err != nil {
			continue
		}
		for _, d := range []string{found, filepath.Dir(found)} { // a partition stands in its disk
			if _, err := os.Stat(filepath.Join(d, "queue")); err == nil {
				at = l.without(d)
				break
			}
		}
		if at != "" {
			break
		}
	}
	if at == "" {
		if strings.HasPrefix(m.source, "/dev/") {
			l.unseen("the block device %s: it is not in /sys", m.source)
		}
		return
	}
	s.Device = filepath.Base(at)
	s.Scheduler = chosen(l.text(at + "/queue/scheduler"))
	s.WriteCache = l.text(at + "/queue/write_cache")
	s.ReadAhead = l.number(at+"/queue/read_ahead_kb", 0)
	if r := l.number(at+"/queue/rotational", 0); r != nil {
		yes := *r == 1
		s.Rotational = &yes
	}
}
