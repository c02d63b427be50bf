// Package torchlegacy lays out the files of torch.save before version 1.6, and since then with
// _use_new_zipfile_serialization=False. Five pickles, one after the other, then the storages:
//
//	pickle   119547037146038801333356, the magic number
//	pickle   1001, the version
//	pickle   {"little_endian": True, "protocol_version": 1001, "type_sizes": {…}}
//	pickle   the object; storages are persistent ids ('storage', torch.FloatStorage, key, 'cpu', elements,
//	         None)
//	pickle   the keys of the storages, as a list of text: the order in which they follow
//	8        elements of the first storage, little-endian
//	…        its bytes: elements times the width of the type that its persistent ids give
//	8, …     the second, and so on, to the end of the file
//
// Each storage that has bytes is one Data region. What package torch says of tensors holds.
//
// A file is refused (and is a Blob) when it is not written on a little-endian machine, when a storage has no
// persistent id, or two that differ in type or length, or another number of elements than its persistent id
// says, when a persistent id is a view of a storage (torch before 0.4), or when a byte follows the last
// storage. The pickles have at most 64 MiB together. The parser takes about the pickles' size times the cost
// that package pickle states, with what it reads doubled as often as it proves too little.
package torchlegacy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"ckptfs/formats"
	"ckptfs/formats/pickle"
	"ckptfs/formats/torch"
)

const (
	// magic is how the first pickle ends: a LONG1 of ten bytes, and STOP. Two bytes, the protocol, come
	// before it.
	magic   = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
	magicAt = 2
	version = 1001

	firstRead   = 4 << 10
	maxPickles  = 64 << 20
	numPickles  = 5
	lenBytes    = 8
	maxStorages = 1 << 20
)

// Name is the format's name.
const Name = "torch-legacy"

// Format is the entry of torch.save's old files in the table of formats.
var Format = formats.Format{
	Parser:  Parser{},
	Sniff:   Sniff,
	Names:   []formats.Name{{Name: Name, Ordered: true}},
	Endings: torch.Endings,
	Views:   torch.Endings,
}

// Parser is the parser of torch.save's files that are not zips.
type Parser struct{}

// Name returns "torch-legacy".
func (Parser) Name() string { return Name }

func reject(format string, args ...any) error {
	return fmt.Errorf("torch-legacy: %w: %s", formats.ErrNotFormat, fmt.Sprintf(format, args...))
}

// Sniff reports whether a file that starts with p may be one.
func Sniff(p []byte, _ int64) bool {
	return len(p) >= magicAt+len(magic) && p[0] == 0x80 && string(p[magicAt:magicAt+len(magic)]) == magic
}

// Parse returns the layout of a file. It reads the pickles and each storage's length.
func (p Parser) Parse(r io.ReaderAt, size int64) (*formats.Layout, error) {
	head, end, err := readPickles(r, size)
	if err != nil {
		return nil, err
	}
	ids, err := storageIDs(head[3])
	if err != nil {
		return nil, err
	}
	keys := head[4].Root()
	if keys.Kind() != pickle.List || keys.Len() != len(ids) {
		return nil, reject("%d keys of %d storages", keys.Len(), len(ids))
	}
	storages := make([]torch.Storage, keys.Len())
	data := make([]formats.Range, keys.Len())
	off := end
	for i := range storages {
		id, ok := ids[string(keys.At(i).Text())]
		if !ok {
			return nil, reject("key %d is no storage's, or a key twice", i)
		}
		delete(ids, id.Key)
		if off > size-lenBytes {
			return nil, reject("storage %.64q: no length", id.Key)
		}
		var b [lenBytes]byte
		if err := formats.ReadFull(r, b[:], off); err != nil {
			return nil, err
		}
		off += lenBytes
		if n := binary.LittleEndian.Uint64(b[:]); n != uint64(id.Numel) {
			return nil, reject("storage %.64q: %d elements, its persistent id says %d", id.Key, n, id.Numel)
		}
		if id.Numel > (size-off)/id.Width {
			return nil, reject("storage %.64q: %d elements of %d bytes in the file's last %d", id.Key,
				id.Numel, id.Width, size-off)
		}
		data[i] = formats.Range{Off: off, Len: id.Numel * id.Width}
		storages[i] = torch.Storage{Key: id.Key, Len: data[i].Len}
		off += data[i].Len
	}
	if off != size {
		return nil, reject("%d bytes after the last storage", size-off)
	}
	l := &formats.Layout{Format: p.Name()}
	var regions []int
	if l.Regions, regions, err = formats.Cover(size, data); err != nil {
		return nil, reject("%v", err)
	}
	for i := range storages {
		storages[i].Region = regions[i]
	}
	l.Tensors, l.Left = torch.Tensors(head[3], storages)
	l.Partial = l.Left != nil
	return l, nil
}

// readPickles returns the pickles that the file begins with, and where the last one ends.
func readPickles(r io.ReaderAt, size int64) (head [numPickles]*pickle.Pickle, end int64, err error) {
	for n := min(size, firstRead); ; n = min(size, 2*n) {
		buf := make([]byte, n)
		if err := formats.ReadFull(r, buf, 0); err != nil {
			return head, 0, err
		}
		if !Sniff(buf, size) {
			return head, 0, reject("no magic number")
		}
		if end, err = parseAll(&head, buf); err == nil {
			return head, end, check(&head)
		}
		if !errors.Is(err, pickle.ErrShort) || n == size || n >= maxPickles {
			return head, 0, reject("%v", err)
		}
	}
}

// parseAll reads the pickles at the start of buf.
func parseAll(head *[numPickles]*pickle.Pickle, buf []byte) (int64, error) {
	at := 0
	for i := range head {
		var err error
		if head[i], err = pickle.Parse(buf[at:], pickle.DefaultLimits); err != nil {
			return 0, err
		}
		at += head[i].Size()
	}
	return int64(at), nil
}

// check looks at the pickles before the object.
func check(head *[numPickles]*pickle.Pickle) error {
	if v, ok := head[1].Root().Int(); !ok || v != version {
		return reject("version %d", v)
	}
	info := head[2].Root()
	little := false
	for i := range info.NumPairs() {
		if k, v := info.Pair(i); string(k.Text()) == "little_endian" {
			little = v.Bool()
		}
	}
	if !little {
		return reject("not little-endian")
	}
	return nil
}

// storageIDs returns the storages that the object's pickle speaks of, by key.
func storageIDs(g *pickle.Pickle) (map[string]torch.ID, error) {
	ids := make(map[string]torch.ID)
	var err error
	g.PersIDs(func(v pickle.Value) bool {
		if t, ok := v.PersID(); ok && t.Kind() == pickle.Tuple && t.Len() > 0 &&
			string(t.At(0).Text()) == "module" {
			return true // ('module', class, file, source): of a pickled nn.Module
		}
		id, ok := torch.ParseID(v)
		if held, known := ids[id.Key]; !ok || known && held != id {
			err = reject("a persistent id that is none of a storage's, or differs from another")
			return false
		}
		ids[id.Key] = id
		if len(ids) > maxStorages {
			err = reject("more than %d storages", maxStorages)
		}
		return err == nil
	})
	return ids, err
}
