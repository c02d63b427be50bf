package zarr

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// store is values by keys.
type store map[string][]byte

func (s store) open(key string) (io.ReaderAt, int64, func(), error) {
	p, ok := s[key]
	if !ok {
		return nil, 0, nil, fs.ErrNotExist
	}
	return bytes.NewReader(p), int64(len(p)), func() {}, nil
}

var encoder = sync.OnceValue(func() *zstd.Encoder {
	w, err := zstd.NewWriter(nil, zstd.WithWindowSize(1<<10), zstd.WithEncoderConcurrency(1),
		zstd.WithSingleSegment(false))
	if err != nil {
		panic(err)
	}
	return w
})

func compress(t testing.TB, codec string, p []byte) []byte {
	var b bytes.Buffer
	var w io.WriteCloser
	switch codec {
	case "":
		return p
	case "gzip":
		w = gzip.NewWriter(&b)
	case "zlib":
		w = zlib.NewWriter(&b)
	default:
		return encoder().EncodeAll(p, nil)
	}
	if _, err := w.Write(p); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// form is how an array is stored.
type form struct {
	version             int
	shape, chunk, shard []int64 // shard: nil for none
	codec               string
	first, crc          bool
	sep                 string
}

func (f *form) metadata() []byte {
	m := map[string]any{"zarr_format": f.version, "shape": f.shape, "fill_value": 0}
	if f.version == 2 {
		m["dtype"], m["order"], m["chunks"], m["dimension_separator"], m["filters"] = "<u2", "C", f.chunk,
			f.sep, nil
		if f.codec != "" {
			m["compressor"] = map[string]any{"id": f.codec, "level": 1}
		}
	} else {
		codecs := []any{map[string]any{"name": "bytes", "configuration": map[string]any{"endian": "little"}}}
		if f.codec != "" {
			codecs = append(codecs, map[string]any{"name": f.codec})
		}
		grid := f.chunk
		if f.shard != nil {
			index := codecs[:1:1]
			if f.crc {
				index = append(index, map[string]any{"name": "crc32c"})
			}
			at := "end"
			if f.first {
				at = "start"
			}
			codecs = []any{map[string]any{"name": "sharding_indexed",
				"configuration": map[string]any{"chunk_shape": f.chunk, "codecs": codecs,
					"index_codecs": index, "index_location": at}}}
			grid = f.shard
		}
		m["data_type"], m["codecs"] = "uint16", codecs
		m["chunk_grid"] = map[string]any{"name": "regular",
			"configuration": map[string]any{"chunk_shape": grid}}
		m["chunk_key_encoding"] = map[string]any{"name": "default",
			"configuration": map[string]any{"separator": f.sep}}
	}
	p, _ := json.Marshal(m)
	return p
}

// save stores an array of 16-bit numbers. Chunks of zeros alone are left out.
func (f *form) save(t testing.TB, elements []uint16) store {
	s := store{}
	shard := f.shard
	if shard == nil {
		shard = f.chunk
	}
	rank := len(f.shape)
	grid, inner := make([]int64, rank), make([]int64, rank)
	for d := range grid {
		grid[d], inner[d] = (f.shape[d]+shard[d]-1)/shard[d], shard[d]/f.chunk[d]
		if grid[d] == 0 {
			return s
		}
	}
	chunk := func(at []int64) ([]byte, bool) {
		var out []byte
		some := false
		in := make([]int64, rank)
		for more := true; more; more = step(in, f.chunk) {
			e, inside := int64(0), true
			for d := range in {
				k := at[d]*f.chunk[d] + in[d]
				inside = inside && k < f.shape[d]
				e = e*f.shape[d] + k
			}
			v := uint16(0xffff) // beyond the end there may be anything
			if inside {
				v = elements[e]
				some = some || v != 0
			}
			out = binary.LittleEndian.AppendUint16(out, v)
		}
		return compress(t, f.codec, out), some
	}
	at := make([]int64, rank)
	for more := true; more; more = step(at, grid) {
		parts := make([]string, 0, rank+1)
		if f.version == 3 {
			parts = append(parts, "c")
		} else if rank == 0 {
			parts = append(parts, "0")
		}
		for _, k := range at {
			parts = append(parts, fmt.Sprint(k))
		}
		key := strings.Join(parts, f.sep)
		if f.shard == nil {
			if p, some := chunk(at); some {
				s[key] = p
			}
			continue
		}
		var body, index []byte
		in, c := make([]int64, rank), make([]int64, rank)
		base := 0
		if n := int64(1); f.first {
			for _, k := range inner {
				n *= k
			}
			if base = int(n) * entryBytes; f.crc {
				base += 4
			}
		}
		any := false
		for more := true; more; more = step(in, inner) {
			for d := range c {
				c[d] = at[d]*inner[d] + in[d]
			}
			p, some := chunk(c)
			if !some {
				index = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(index,
					math.MaxUint64), math.MaxUint64)
				continue
			}
			any = true
			index = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(index,
				uint64(base+len(body))), uint64(len(p)))
			body = append(body, p...)
		}
		if f.crc {
			index = binary.LittleEndian.AppendUint32(index,
				crc32.Checksum(index, crc32.MakeTable(crc32.Castagnoli)))
		}
		if f.first {
			index, body = body, index
		}
		if any {
			s[key] = append(body, index...)
		}
	}
	return s
}
