package segment

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/golden"
)

func TestGoldenFormat(t *testing.T) {
	m := newMem(t)
	w := create(t, m)
	mustPut(t, w, cas.Chunk, "some tensor data")
	mustPut(t, w, cas.List, "a list!")
	mustPut(t, w, cas.Manifest, "")
	mustPut(t, w, 200, "of a later version")
	delta := make([]byte, BaseSize)
	Base{Hash: cas.Sum([]byte("some tensor data")), Number: 1}.Put(delta)
	buf := append(make([]byte, RecordHeaderSize), append(delta, "difference"...)...)
	slot, err := w.Reserve(len(buf) - RecordHeaderSize)
	if err != nil {
		t.Fatal(err)
	}
	rec := &Record{Kind: cas.Chunk, Codec: codec.Delta, Raw: 16, Hash: cas.Sum([]byte("more tensor data")),
		XXH3: cas.SumXXH3([]byte("more tensor data"))}
	err = w.Write(slot, rec, buf)
	w.Finish(slot, rec, err)
	base := Base{Hash: cas.Sum([]byte("some tensor data")), Second: cas.Sum([]byte("more tensor data")),
		Number: RoundedNumber}
	buf = make([]byte, RecordHeaderSize+base.Size()+1)
	base.Put(buf[RecordHeaderSize:])
	buf[len(buf)-1] = 1
	if slot, err = w.Reserve(len(buf) - RecordHeaderSize); err != nil {
		t.Fatal(err)
	}
	rec = &Record{Kind: cas.Chunk, Codec: codec.Rounded, Raw: 16, Hash: cas.Sum([]byte("half as precise")),
		XXH3: cas.SumXXH3([]byte("half as precise"))}
	err = w.Write(slot, rec, buf)
	w.Finish(slot, rec, err)
	base.Number = 2
	buf = append(make([]byte, RecordHeaderSize+base.Size()), "of low rank"...)
	base.Put(buf[RecordHeaderSize:])
	if slot, err = w.Reserve(len(buf) - RecordHeaderSize); err != nil {
		t.Fatal(err)
	}
	rec = &Record{Kind: cas.Chunk, Codec: codec.LowRank, Raw: 16, Hash: cas.Sum([]byte("a merged adapter")),
		XXH3: cas.SumXXH3([]byte("a merged adapter"))}
	err = w.Write(slot, rec, buf)
	w.Finish(slot, rec, err)
	recipe, ok := Recipe([]cas.Hash{cas.Sum([]byte("some tensor data")), cas.Sum([]byte("half as precise")),
		cas.Sum([]byte("more tensor data"))})
	if !ok {
		t.Fatal("no recipe")
	}
	buf = append(make([]byte, RecordHeaderSize+recipe.Size()), "a program"...)
	recipe.Put(buf[RecordHeaderSize:])
	if slot, err = w.Reserve(len(buf) - RecordHeaderSize); err != nil {
		t.Fatal(err)
	}
	rec = &Record{Kind: cas.Chunk, Codec: codec.Recipe, Raw: 16, Hash: cas.Sum([]byte("what is computed")),
		XXH3: cas.SumXXH3([]byte("what is computed"))}
	err = w.Write(slot, rec, buf)
	w.Finish(slot, rec, err)
	if _, err := w.Seal(sealTime); err != nil {
		t.Fatal(err)
	}
	got := dump(fileOf(t, m))
	golden.Same(t, "segment.golden", got)
}

func dump(p []byte) string {
	var b strings.Builder
	off := 0
	field := func(n int, what string) []byte {
		q := p[off : off+n]
		for i := 0; i < n; i += 16 {
			line := q[i:min(i+16, n)]
			b.WriteString(strings.TrimRight(fmt.Sprintf("%06d  %-47s  %s", off+i, fmt.Sprintf("% x", line),
				what), " ") + "\n")
			what = ""
		}
		off += n
		return q
	}
	title := func(s string) { fmt.Fprintf(&b, "\n%s\n", s) }
	num := func(n int, what string) uint64 {
		q := append(bytes.Clone(p[off:off+n]), make([]byte, 8-n)...)
		v := le.Uint64(q)
		field(n, fmt.Sprintf("%s %d", what, v))
		return v
	}

	title("file header")
	field(8, fmt.Sprintf("magic %q", p[off:off+8]))
	num(2, "version")
	field(2, "0")
	num(4, "segment number")
	field(16, "store id")
	field(28, "0")
	field(4, "CRC of bytes 0 to 59")

	trailer := len(p) - trailerSize
	footer := int(le.Uint64(p[trailer+32:]))
	for off < footer {
		title("record")
		field(4, fmt.Sprintf("magic %q", p[off:off+4]))
		field(1, "kind: "+cas.Kind(p[off]).String())
		id := byte(num(1, "codec"))
		field(2, "0")
		num(4, "raw length")
		n := int(num(4, "stored length"))
		field(32, "hash")
		field(16, "XXH3 of the content")
		num(8, "offset")
		field(4, "CRC of the payload")
		field(4, "CRC of the header, the store id and the segment number")
		if codec.NeedsBase(id) {
			field(32, "payload: hash of the base")
			num(1, "number")
			n -= BaseSize
		}
		switch id {
		case codec.Rounded:
			num(1, "bases")
			field(32, "hash of the second")
			n -= 33
		case codec.Recipe:
			for i := range num(1, "bases") - 1 {
				field(32, fmt.Sprintf("hash of base %d", i+1))
				n -= 32
			}
			n--
		case codec.LowRank:
			field(32, "hash of the columns")
			n -= LowRankSize - BaseSize
		}
		field(n, fmt.Sprintf("payload %q", p[off:off+n]))
		field((8-off%8)%8, "padding")
	}
	for off < trailer {
		title("footer entry")
		field(32, "hash")
		num(8, "offset")
		num(4, "stored length")
		num(4, "raw length")
		field(1, "kind: "+cas.Kind(p[off]).String())
		num(1, "codec")
		field(6, "0")
	}
	title("trailer")
	field(8, fmt.Sprintf("magic %q", p[off:off+8]))
	num(2, "version")
	field(2, "0")
	num(4, "segment number")
	field(16, "store id")
	num(8, "offset of the footer")
	num(8, "entries")
	for _, kind := range []string{"chunks", "lists", "manifests", "others"} {
		num(8, kind+": records")
		num(8, kind+": raw bytes")
		num(8, kind+": stored bytes")
	}
	num(8, "sealed at")
	field(4, "CRC of the footer")
	field(4, "CRC of bytes 0 to 155")
	fmt.Fprintf(&b, "\n%d bytes, %s\n", len(p), hex.EncodeToString(p[len(p)-4:]))
	return b.String()
}
