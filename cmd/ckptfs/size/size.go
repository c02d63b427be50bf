// Package size reads sizes as people write them on a command line.
package size

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"
)

// Size is a number of bytes: "64GiB", "64G" (the same), "64GB" (10^9), "1048576", and where a disk is meant
// "10%". The zero value is "auto".
type Size struct {
	Bytes   int64
	Given   bool // false is "auto"
	text    string
	percent float64 // of the disk, when above 0
}

// Parse reads a size. disk allows "auto" and a percentage.
func Parse(s string, disk bool) (Size, error) {
	t := strings.TrimSpace(s)
	out := Size{text: t, Given: true}
	if disk && (t == "auto" || t == "") {
		return Size{text: "auto"}, nil
	}
	if p, ok := strings.CutSuffix(t, "%"); ok && disk {
		v, err := strconv.ParseFloat(strings.TrimSpace(p), 64)
		if err != nil || !(v >= 0 && v <= 100) {
			return Size{}, fmt.Errorf("%q is not a percentage from 0%% to 100%%", s)
		}
		out.percent = v
		return out, nil
	}
	if t == "" || t[0] < '0' || t[0] > '9' || strings.Contains(t, ",") {
		return Size{}, fmt.Errorf("%q is not a size such as 512MiB or 64GiB", s)
	}
	if last := t[len(t)-1] | 0x20; strings.IndexByte("kmgtpe", last) >= 0 {
		t += "iB" // "64G" as the other tools on Linux take it
	}
	v, err := humanize.ParseBytes(t)
	if err != nil || v > math.MaxInt64 {
		return Size{}, fmt.Errorf("%q is not a size such as 512MiB or 64GiB", s)
	}
	out.Bytes = int64(v)
	return out, nil
}

// Percent is that of the disk; 0 if the size is not given so.
func (s Size) Percent() float64 { return s.percent }

// Of resolves the size for the disk that holds path; -1 is auto.
func (s Size) Of(path string) (int64, error) {
	switch {
	case !s.Given:
		return -1, nil
	case s.percent == 0:
		return s.Bytes, nil
	}
	return OfDisk(path, s.percent)
}

// OfDisk is so many percent of the disk that holds path.
func OfDisk(path string, percent float64) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("size of the disk of %s: %w", path, err)
	}
	return int64(float64(st.Blocks) * float64(st.Frsize) * percent / 100), nil
}

// Flag is a size as a pflag.Value.
type Flag struct {
	Size
	disk bool
}

// Auto is a flag that is "auto" unless given. disk allows a percentage of one.
func Auto(disk bool) Flag { return Flag{Size: Size{text: "auto"}, disk: disk} }

// Default is a flag that is so many bytes unless given, which help shows as text.
func Default(text string, bytes int64) Flag {
	return Flag{Size: Size{text: text, Bytes: bytes, Given: true}}
}

func (f *Flag) String() string { return f.text }

// Type is what help says in place of a value.
func (f *Flag) Type() string { return "size" }

// Set reads a value.
func (f *Flag) Set(s string) error {
	v, err := Parse(s, f.disk)
	if err == nil {
		f.Size = v
	}
	return err
}
