package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"
)

// size is a flag's number of bytes: "64GiB", "64G" (the same), "64GB" (10^9), "1048576", and where a disk is
// meant "10%". The zero value is "auto".
type size struct {
	text    string
	bytes   int64
	percent float64 // of the disk, when above 0
	set     bool
}

// parseSize reads a size. disk allows "auto" and a percentage.
func parseSize(s string, disk bool) (size, error) {
	t := strings.TrimSpace(s)
	out := size{text: t, set: true}
	if disk && (t == "auto" || t == "") {
		return size{text: "auto"}, nil
	}
	if p, ok := strings.CutSuffix(t, "%"); ok && disk {
		v, err := strconv.ParseFloat(strings.TrimSpace(p), 64)
		if err != nil || !(v >= 0 && v <= 100) {
			return size{}, fmt.Errorf("%q is not a percentage from 0%% to 100%%", s)
		}
		out.percent = v
		return out, nil
	}
	if t == "" || t[0] < '0' || t[0] > '9' || strings.Contains(t, ",") {
		return size{}, fmt.Errorf("%q is not a size such as 512MiB or 64GiB", s)
	}
	if last := t[len(t)-1] | 0x20; strings.IndexByte("kmgtpe", last) >= 0 {
		t += "iB" // "64G" as the other tools on Linux take it
	}
	v, err := humanize.ParseBytes(t)
	if err != nil || v > math.MaxInt64 {
		return size{}, fmt.Errorf("%q is not a size such as 512MiB or 64GiB", s)
	}
	out.bytes = int64(v)
	return out, nil
}

// of resolves the size for the disk that holds path; -1 is auto.
func (s size) of(path string) (int64, error) {
	switch {
	case !s.set:
		return -1, nil
	case s.percent == 0:
		return s.bytes, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("size of the disk of %s: %w", path, err)
	}
	return int64(float64(st.Blocks) * float64(st.Frsize) * s.percent / 100), nil
}

// sizeFlag is a size as a pflag.Value.
type sizeFlag struct {
	size
	disk bool
}

func (f *sizeFlag) String() string { return f.text }
func (f *sizeFlag) Type() string   { return "size" }
func (f *sizeFlag) Set(s string) error {
	v, err := parseSize(s, f.disk)
	if err == nil {
		f.size = v
	}
	return err
}
