package commitlog

import (
	"bytes"
	"testing"
)

// A clone may lose what its original may lose, and neither touches the other.
func TestTwinsCloneLosesForItself(t *testing.T) {
	lost := 0
	for seed := range uint64(20) {
		disk := NewTwin(1)
		f, err := disk.Create("/file", 2*twinPage)
		must(t, err)
		must(t, f.Sync())
		must(t, disk.SyncDir("/"))
		page := bytes.Repeat([]byte("x"), twinPage)
		_, err = f.WriteAt(page, twinPage) // not synced
		must(t, err)
		clone := disk.Clone(seed)
		clone.Crash()
		b, err := clone.ReadFile("/file")
		must(t, err)
		if !bytes.Equal(b[twinPage:], page) {
			lost++
		}
		own, err := disk.ReadFile("/file")
		must(t, err)
		if !bytes.Equal(own[twinPage:], page) {
			t.Fatal("the clone's crash took bytes of its original")
		}
		_, err = f.WriteAt([]byte("y"), 0)
		must(t, err)
		if again, _ := clone.ReadFile("/file"); !bytes.Equal(again, b) {
			t.Fatal("a write reached the clone")
		}
	}
	if lost == 0 || lost == 20 {
		t.Errorf("%d of 20 clones lost what was not synced", lost)
	}
}

// A flipped bit is there for good, and nothing else is.
func TestTwinFlipsABit(t *testing.T) {
	disk := NewTwin(1)
	must(t, disk.WriteFileAtomic("/file", []byte("abc")))
	must(t, disk.Flip("/file", 1, 1))
	disk.Crash()
	if b, err := disk.ReadFile("/file"); err != nil || string(b) != "acc" {
		t.Errorf("%q, %v", b, err)
	}
	if disk.Flip("/file", 3, 1) == nil || disk.Flip("/none", 0, 1) == nil {
		t.Error("flipped what is not there")
	}
}
