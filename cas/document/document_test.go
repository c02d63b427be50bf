package document

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"ckptfs/cas"
)

func TestReader(t *testing.T) {
	p := []byte("ABC1")
	p = binary.AppendUvarint(p, math.MaxInt64)
	p = binary.AppendVarint(p, -300)
	p = append(p, 2, 'h', 'i', 7)
	d := Reader{P: p, Of: "test"}
	d.Magic("ABC1")
	if n, z, s, b := d.Num(), d.Zigzag(), d.String(), d.Byte(); n != math.MaxInt64 || z != -300 ||
		s != "hi" || b != 7 || d.End() != nil {
		t.Error(n, z, s, b, d.Err)
	}
	for name, c := range map[string]struct {
		p    string
		read func(d *Reader)
		want error
	}{
		"another magic":      {"ABD1", func(d *Reader) { d.Magic("ABC1") }, cas.ErrCorrupt},
		"a version":          {"ABC2", func(d *Reader) { d.Magic("ABC1") }, cas.ErrNewer},
		"an earlier version": {"ABC1", func(d *Reader) { d.Magic("ABC2") }, cas.ErrCorrupt},
		"no magic":           {"AB", func(d *Reader) { d.Magic("ABC1") }, cas.ErrCorrupt},
		"a longer number":    {"\x80\x00", func(d *Reader) { d.Num() }, cas.ErrCorrupt},
		"past 2^63": {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", func(d *Reader) { d.Num() },
			cas.ErrCorrupt},
		"past 2^64": {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", func(d *Reader) { d.Zigzag() },
			cas.ErrCorrupt},
		"a cut number":       {"\x80", func(d *Reader) { d.Num() }, cas.ErrCorrupt},
		"more than there is": {"\x05abcd", func(d *Reader) { _ = d.String() }, cas.ErrCorrupt},
		"too many items":     {"\x02abcd", func(d *Reader) { d.Count(3) }, cas.ErrCorrupt},
		"a rest":             {"a", func(*Reader) {}, cas.ErrCorrupt},
		"nothing":            {"", func(d *Reader) { d.Byte() }, cas.ErrCorrupt},
		"less than nothing":  {"a", func(d *Reader) { d.Take(-1) }, cas.ErrCorrupt},
	} {
		d := Reader{P: []byte(c.p), Of: "test"}
		if c.read(&d); !errors.Is(d.End(), c.want) {
			t.Errorf("%s: %v", name, d.Err)
		}
		if d.Num() != 0 || d.Byte() != 0 || d.Count(1) != 0 || d.Take(1) != nil || !errors.Is(d.Err, c.want) {
			t.Errorf("%s: reads go on", name)
		}
	}
}
