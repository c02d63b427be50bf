// Package tensorflow lays out the data files of TensorFlow's checkpoints (version 2, tensor bundles): raw
// bytes, which another file names.
//
//	PREFIX.data-00000-of-00002   the elements of tensors one after the other, no gaps, no padding
//	PREFIX.index                 a table of LevelDB's: "" -> BundleHeaderProto, NAME -> BundleEntryProto, by
//	                             name
//
//	BundleHeaderProto   1 num_shards, 2 endianness (0 little), 3 version
//	BundleEntryProto    1 dtype, 2 shape { 2 dim { 1 size } }, 3 shard_id, 4 offset, 5 size, 6 crc32c, 7
//	                    slices
//
//	table    blocks; at its end 48 bytes: handles of the meta block and the index block (offset and size,
//	         varints), zeros, 57FB808B247547DB
//	block    entries: shared with the key before, rest, length of the value (varints), the rest, the value;
//	         u32 restarts and their number; compression (1 byte, 0: none), u32 masked CRC-32C
//
// An entry's bytes are a Data region, and a tensor called by its name. What is no plain tensor (strings, the
// object graph, a type that formats.DType lacks, parts of a partitioned variable, whose names are coded) is
// Data without a tensor, or Blob for strings, so that the layout is partial.
//
// # What is recognised
//
// A table without compression whose header has as many shards as the data file's name says, little-endian, in
// which every entry of the shard lies in the file and no two overlap. Checksums are not looked at: bytes that
// are wrong make the cuts fall elsewhere, no more.
//
// The index has at most 64 MiB, which are taken, and 262,144 entries of some 250 bytes.
package tensorflow

import (
	"encoding/binary"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"unicode/utf8"

	"ckptfs/formats"
	"ckptfs/formats/protowire"
)

const (
	maxIndex   = 64 << 20
	maxEntries = 1 << 18
	maxRank    = 64
	maxNames   = 64 << 20
	footerSize = 48
	trailer    = 5 // of a block

	tableMagic = 0xdb4775248b80fb57

	stringType = 7
)

// Name is the layouts' format.
const Name = "tensorflow"

// Format is TensorFlow's entry in the table of formats. Its files are known by another only.
var Format = formats.Format{Names: []formats.Name{{Name: Name}}, Sidecar: Sidecar{}}

// types has the numbers of DataType.
var types = map[uint64]formats.DType{
	1: formats.F32, 2: formats.F64, 3: formats.I32, 4: formats.U8, 5: formats.I16, 6: formats.I8,
	8: formats.C64, 9: formats.I64, 10: formats.Bool, 14: formats.BF16, 17: formats.U16, 18: formats.C128,
	19: formats.F16, 22: formats.U32, 23: formats.U64, 24: formats.F8E5M2, 25: formats.F8E4M3,
}

func reject(format string, args ...any) error {
	return fmt.Errorf("tensorflow: %w: %s", formats.ErrNotFormat, fmt.Sprintf(format, args...))
}

var shardName = regexp.MustCompile(`^(.+)\.data-([0-9]{5})-of-([0-9]{5})(?:\.tempstate[0-9]+)?$`)

// Shard takes a data file's name apart, or the one that it has while it is written: the index's name, the
// file's number and how many there are. false: it is not the name of one.
func Shard(name string) (index string, number, shards int, ok bool) {
	m := shardName.FindStringSubmatch(name)
	if m == nil {
		return "", 0, 0, false
	}
	number, _ = strconv.Atoi(m[2])
	shards, _ = strconv.Atoi(m[3])
	return m[1] + ".index", number, shards, number < shards
}

// Sidecar lays out data files by their index.
type Sidecar struct{}

// Of returns the name of the index of the data file name.
func (Sidecar) Of(name string) (index string, sure bool) {
	index, _, _, ok := Shard(name)
	return index, ok
}

// Layout is Layout of the data file name.
func (Sidecar) Layout(name string, size int64, index io.ReaderAt, indexSize int64) (*formats.Layout, error) {
	_, number, shards, ok := Shard(name)
	if !ok {
		return nil, reject("a data file called %.64q", name)
	}
	return Layout(index, indexSize, number, shards, size)
}

// entry is one of the index.
type entry struct {
	dtype, shard, offset, size uint64
	shape                      []int64
	sliced                     bool
}

// Layout is that of data file number of shards, of size bytes, by the index in r, which has indexSize bytes.
func Layout(r io.ReaderAt, indexSize int64, number, shards int, size int64) (*formats.Layout, error) {
	if indexSize < footerSize || indexSize > maxIndex {
		return nil, reject("an index of %d bytes", indexSize)
	}
	p := make([]byte, indexSize)
	if err := formats.ReadFull(r, p, 0); err != nil {
		return nil, err
	}
	l := &formats.Layout{Format: Name, Partial: true}
	var data []formats.Range
	header, entries := false, 0
	err := table(p, func(key, value []byte) error {
		if len(key) == 0 {
			if header {
				return reject("two headers")
			}
			header = true
			return checkHeader(value, shards)
		}
		if entries++; entries > maxEntries || !header {
			return reject("%d entries, or none of a header", entries)
		}
		e, err := parseEntry(value)
		if err != nil || e.shard >= uint64(shards) {
			return reject("entry %.64q", key)
		}
		if e.shard != uint64(number) || e.sliced || e.dtype == stringType {
			return nil
		}
		if e.offset > uint64(size) || e.size > uint64(size)-e.offset {
			return reject("entry %.64q: bytes %d+%d of %d", key, e.offset, e.size, size)
		}
		t := formats.Tensor{Name: string(key), DType: types[e.dtype], Shape: e.shape, Region: -1}
		if e.size > 0 {
			t.Region = len(data)
			data = append(data, formats.Range{Off: int64(e.offset), Len: int64(e.size)})
		}
		if t.DType != "" && utf8.Valid(key) && key[0] != 0 && t.NumBytes() == int64(e.size) {
			l.Tensors = append(l.Tensors, t)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !header {
		return nil, reject("no header")
	}
	if err := l.Cover(size, data); err != nil {
		return nil, reject("%v", err)
	}
	formats.Distinguish(l.Tensors, make([]int, len(l.Tensors)))
	return l, nil
}

func checkHeader(p []byte, shards int) error {
	n, bigEndian := uint64(0), false
	m := protowire.In(p)
	err := m.Fields(m.All(), func(f protowire.Field) error {
		switch f.Number {
		case 1:
			n = f.Value
		case 2:
			bigEndian = bigEndian || f.Value != 0
		}
		return nil
	})
	if err != nil || bigEndian || n != uint64(shards) {
		return reject("a header of %d shards, want %d", n, shards)
	}
	return nil
}

func parseEntry(p []byte) (e entry, err error) {
	m := protowire.In(p)
	err = m.Fields(m.All(), func(f protowire.Field) error {
		switch f.Number {
		case 1:
			e.dtype = f.Value
		case 2:
			return m.Message(f, func(f protowire.Field) error {
				if f.Number != 2 {
					return nil
				}
				return e.addDim(m, f)
			})
		case 3:
			e.shard = f.Value
		case 4:
			e.offset = f.Value
		case 5:
			e.size = f.Value
		case 7:
			e.sliced = true
		}
		return nil
	})
	return e, err
}

// addDim reads one dimension of the shape.
func (e *entry) addDim(m *protowire.Reader, f protowire.Field) error {
	size := int64(0)
	err := m.Message(f, func(f protowire.Field) error {
		if f.Number == 1 {
			size = int64(f.Value)
		}
		return nil
	})
	e.shape = append(e.shape, size)
	if err == nil && (size < 0 || len(e.shape) > maxRank) {
		err = reject("shape %d", e.shape)
	}
	return err
}

// table calls each with the keys of a table and their values.
func table(p []byte, each func(key, value []byte) error) error {
	foot := p[len(p)-footerSize:]
	if binary.LittleEndian.Uint64(foot[footerSize-8:]) != tableMagic {
		return reject("no table")
	}
	_, rest, ok := handle(foot)
	var at [2]uint64
	if ok {
		at, _, ok = handle(rest)
	}
	if !ok {
		return reject("a footer")
	}
	left := &budget{blocks: 2 * len(p), keys: maxNames} // an index may name a block again and again
	return block(p, at, left, func(_, value []byte) error {
		at, _, ok := handle(value)
		if !ok {
			return reject("a handle")
		}
		return block(p, at, left, each)
	})
}

// handle reads the place of a block.
func handle(p []byte) (at [2]uint64, rest []byte, ok bool) {
	for i := range at {
		v, n := binary.Uvarint(p)
		if n <= 0 {
			return at, nil, false
		}
		at[i], p = v, p[n:]
	}
	return at, p, true
}

// budget is how many bytes of blocks and of keys may still be read.
type budget struct{ blocks, keys int }

// block calls each with the entries of a block.
func block(file []byte, at [2]uint64, left *budget, each func(key, value []byte) error) error {
	size := uint64(len(file))
	if at[0] > size || at[1] > size-at[0] || size-at[0]-at[1] < trailer || at[1] < 4 ||
		file[at[0]+at[1]] != 0 {
		return reject("a block of %d bytes at %d", at[1], at[0])
	}
	p := file[at[0]:][:at[1]]
	if left.blocks -= len(p); left.blocks < 0 {
		return reject("blocks that overlap")
	}
	restarts := uint64(binary.LittleEndian.Uint32(p[len(p)-4:]))
	if restarts > uint64(len(p)-4)/4 {
		return reject("%d restarts", restarts)
	}
	p = p[:len(p)-4-4*int(restarts)]
	var key []byte
	for len(p) > 0 {
		var n [3]uint64 // shared, rest, value
		for i := range n {
			v, k := binary.Uvarint(p)
			if k <= 0 {
				return reject("an entry")
			}
			n[i], p = v, p[k:]
		}
		if n[0] > uint64(len(key)) || n[1] > uint64(len(p)) || n[2] > uint64(len(p))-n[1] {
			return reject("an entry")
		}
		if left.keys -= int(n[0] + n[1]); left.keys < 0 {
			return reject("more than %d bytes of keys", maxNames)
		}
		key = append(key[:n[0]], p[:n[1]]...)
		if err := each(key, p[n[1]:][:n[2]]); err != nil {
			return err
		}
		p = p[n[1]+n[2]:]
	}
	return nil
}
