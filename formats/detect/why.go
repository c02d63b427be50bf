package detect

import (
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"ckptfs/formats"
	"ckptfs/formats/zipdir"
)

// compressed are how files begin that are compressed as a whole, by what.
var compressed = map[string]string{
	"gzip": "\x1f\x8b\x08", "bzip2": "BZh", "xz": "\xfd7zXZ\x00", "zstd": "\x28\xb5\x2f\xfd",
	"lz4": "\x04\x22\x4d\x18",
}

// Why says why a file is stored as one that no parser knows: it is compressed, or not what its ending has one
// expect, or has more tensors than the memory or a manifest has room for. keeps reports whether a manifest of
// a layout can be written. "" when there is nothing to be said.
func (d *Detector) Why(name string, r io.ReaderAt, size int64, keeps func(*formats.Layout) bool) string {
	head := make([]byte, min(size, SniffLen))
	if err := formats.ReadFull(r, head, 0); err != nil || size == 0 {
		return ""
	}
	for by, magic := range compressed {
		if strings.HasPrefix(string(head), magic) {
			return "the file is compressed, by " + by
		}
	}
	ext := path.Ext(name)
	switch {
	case ext == ".joblib" && len(head) > 2 && head[0] == 0x78 && (int(head[0])<<8|int(head[1]))%31 == 0:
		return "the file is compressed, by zlib"
	case ext == ".zip" && zipdir.Sniff(head, size):
		return "zip: entries are compressed, or are no files with tensors"
	}
	f := expected(ext, head, size)
	if f == nil {
		return ""
	}
	p := f.Parser
	if bounded, ok := p.(formats.Bounded); ok {
		p = bounded.Bound(d.memory)
	}
	l, err := parse(p, r, size)
	switch {
	case err == nil && len(l.Tensors) > 0 && !keeps(l):
		return fmt.Sprintf("%s: %d tensors, more than a manifest holds, whatever --memory is", l.Format,
			len(l.Tensors))
	case err == nil && len(l.Tensors) > 0:
		return fmt.Sprintf("%s: its %d tensors were not seen when it was stored, for want of --memory or by an "+
			"earlier version; written again, it has them", l.Format, len(l.Tensors))
	case errors.Is(err, formats.ErrNotFormat):
		return strings.Replace(err.Error(), formats.ErrNotFormat.Error()+": ", "", 1)
	}
	return ""
}

// expected returns the format that one expects of a file with this ending; nil for none. An ending that
// several formats claim speaks for the first whose Sniff accepts the file's head.
func expected(ext string, head []byte, size int64) *formats.Format {
	var claim []*formats.Format
	for _, f := range table {
		if slices.Contains(f.Endings, ext) {
			claim = append(claim, f)
		}
	}
	if len(claim) == 1 {
		return claim[0]
	}
	for _, f := range claim {
		if f.Sniff(head, size) {
			return f
		}
	}
	return nil
}
