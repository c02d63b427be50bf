package spilled

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
)

// Strings of all lengths are found where they were put, over the ends of blocks too, and take no memory.
func TestText(t *testing.T) {
	dir, err := disk.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	text, places := NewText(dir), []int64{}
	of := func(i int) string { return strings.Repeat(string(rune('a'+i%26)), i%300+i%7*(i%97)*100) }
	for i := range 3000 {
		places = append(places, text.Add(of(i)))
	}
	for i, at := range places {
		if got := string(text.Append([]byte("before "), at)); got != "before "+of(i) {
			t.Fatalf("string %d: %d bytes, want %d", i, len(got), len(of(i)))
		}
	}
	if n := text.Memory(); n > 1<<20 {
		t.Errorf("%d bytes in memory", n)
	}
	for _, m := range text.blocks.files {
		if err := unix.Mprotect(m.bytes, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	if lost := Guard(func() error { text.Append(nil, places[2000]); return nil }); lost != ErrLost {
		t.Errorf("a file that is lost: %v", lost)
	}
}
