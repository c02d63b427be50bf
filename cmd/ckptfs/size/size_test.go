package size

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "0B": 0, "1048576": 1 << 20, "64GiB": 64 << 30, "64G": 64 << 30, "64g": 64 << 30,
		"64GB": 64e9, "1.5GiB": 3 << 29,
		" 512 MiB ": 512 << 20, "10k": 10 << 10, "2T": 2 << 40,
	} {
		s, err := Parse(text, false)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got, err := s.Of("/"); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "GiB", "-1", "1,5GiB", "5 apples", "10%", "auto", "1e9", "99999999E",
		"0x10", "1..5G", "NaN", "+1"} {
		if s, err := Parse(text, false); err == nil {
			t.Errorf("%q was taken as %+v", text, s)
		}
	}
}

func TestParseDiskSize(t *testing.T) {
	dir := t.TempDir()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	disk := int64(st.Blocks) * st.Frsize
	for text, want := range map[string]int64{"auto": -1, "": -1, "100%": disk, "50%": disk / 2, "0%": 0,
		"0": 0, "1M": 1 << 20} {
		s, err := Parse(text, true)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got, err := s.Of(dir); err != nil || got < want-1 || got > want+1 {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"101%", "-1%", "%", "x%", "NaN%"} {
		if s, err := Parse(text, true); err == nil {
			t.Errorf("%q was taken as %+v", text, s)
		}
	}
}
