package record

import (
	"errors"
	"fmt"
	"io"
	"math"

	"ckptfs/cas"
)

const (
	tableMagic   = "ckpttabl"
	tableVersion = 2
	trailerSize  = 64

	// MaxBlock bounds the bytes of a block that has more than one entry.
	MaxBlock = 64 << 10
	// maxBlockPaths bounds the bytes of all paths of such a block.
	maxBlockPaths = 1 << 20
)

// Table is what a head says of a table.
type Table struct {
	ID          ID
	Len         int64    // bytes
	Directory   int64    // where its directory begins
	Hash        cas.Hash // of all from there on
	Entries     int64
	First, Last string // paths
}

func (t *Table) check() error {
	if t.Len > MaxObject || t.Directory > t.Len-trailerSize || t.Entries < 1 ||
		t.Entries > t.Directory {
		return fmt.Errorf("table %s: %d entries, directory at %d of %d", t.ID, t.Entries, t.Directory, t.Len)
	}
	for _, p := range []string{t.First, t.Last} {
		if err := CheckPath(p); err != nil {
			return fmt.Errorf("table %s: %w", t.ID, err)
		}
	}
	if n := ComparePaths(t.First, t.Last); n > 0 || t.Entries == 1 && n != 0 {
		return fmt.Errorf("table %s: %d entries from %.200q to %.200q", t.ID, t.Entries, t.First, t.Last)
	}
	return nil
}

func (t *Table) append(p []byte) []byte {
	p = num(num(append(p, t.ID[:]...), t.Len), t.Directory)
	return str(str(num(append(p, t.Hash[:]...), t.Entries), t.First), t.Last)
}

func readTable(r *reader) Table {
	t := Table{ID: r.id()}
	t.Len, t.Directory, t.Hash = r.Num(), r.Num(), r.hash()
	t.Entries, t.First, t.Last = r.Num(), r.String(), r.String()
	return t
}

// EncodeTable makes a table of own's entries, ascending (Entry.Compare) and at least one. The error wraps
// cas.ErrTooLarge when they need more than one table.
func EncodeTable(own Writer, id ID, entries []Entry) ([]byte, Table, error) {
	t := Table{ID: id, Entries: int64(len(entries))}
	dict, err := newDictionary(own, entries)
	if err == nil {
		err = dict.checkEntries(entries, math.MaxInt)
	}
	if err == nil && len(entries) == 0 {
		err = fmt.Errorf("no entries")
	}
	if err != nil {
		return nil, t, fmt.Errorf("table %s: %w", id, err)
	}
	t.First, t.Last = entries[0].Path, entries[len(entries)-1].Path
	p, err := t.encode(dict, entries)
	if err == nil && t.Len > MaxObject {
		err = fmt.Errorf("%d bytes: %w", t.Len, cas.ErrTooLarge)
	}
	if err != nil {
		return nil, t, fmt.Errorf("table %s: %w", id, err)
	}
	return p, t, nil
}

// NewTable is a table with its bytes.
type NewTable struct {
	Table
	Bytes []byte
}

// EncodeTables makes as few tables of entries as it takes, in their order. random gives ids.
func EncodeTables(own Writer, random io.Reader, entries []Entry) ([]NewTable, error) {
	id, err := DrawID(random)
	if err != nil {
		return nil, err
	}
	p, t, err := EncodeTable(own, id, entries)
	if errors.Is(err, cas.ErrTooLarge) && len(entries) > 1 {
		first, err := EncodeTables(own, random, entries[:len(entries)/2])
		if err != nil {
			return nil, err
		}
		second, err := EncodeTables(own, random, entries[len(entries)/2:])
		return append(first, second...), err
	}
	return []NewTable{{t, p}}, err
}

const (
	// maxTogether bounds what tables are merged to, in bytes: they are read into memory.
	maxTogether = 16 << 20
	// alike is how many tables become one.
	alike = 4
)

// Mergeable is how many of a head's tables, newest first, are to become one with a new one, so that a head
// has few of them and each entry is written few times.
func (t *Table) Mergeable(tables []Table) int {
	n, sum := 0, t.Len
	for n < len(tables) && tables[n].Len <= 2*t.Len && sum+tables[n].Len <= maxTogether {
		sum += tables[n].Len
		n++
	}
	if n < alike-1 {
		return 0
	}
	return n
}

// encode makes a table's bytes, and sets what follows from them.
func (t *Table) encode(dict *dictionary, entries []Entry) ([]byte, error) {
	d := &Directory{dictionary: *dict}
	p, err := d.appendBlocks(entries)
	if err != nil {
		return nil, err
	}
	t.Directory = int64(len(p))
	p = appendTrailer(d.append(p), *t)
	t.Len, t.Hash = int64(len(p)), cas.Sum(p[t.Directory:])
	return p, nil
}

// appendTrailer appends the trailer to the blocks and the directory.
func appendTrailer(p []byte, t Table) []byte {
	b := make([]byte, trailerSize)
	copy(b, tableMagic)
	le.PutUint16(b[8:], tableVersion)
	le.PutUint64(b[16:], uint64(t.Directory))
	le.PutUint64(b[24:], uint64(t.Entries))
	le.PutUint32(b[56:], crc(p[t.Directory:]))
	le.PutUint32(b[60:], crc(b[:60]))
	return append(p, b...)
}

// readTrailer sets what a trailer says of a table.
func (t *Table) readTrailer(b []byte) error {
	if len(b) != trailerSize || string(b[:8]) != tableMagic || le.Uint32(b[60:]) != crc(b[:60]) {
		return fmt.Errorf("table %s: trailer: %w", t.ID, cas.ErrCorrupt)
	}
	if err := checkVersion("table "+t.ID.String(), b[8:], tableVersion); err != nil {
		return err
	}
	t.Directory, t.Entries = int64(le.Uint64(b[16:])), int64(le.Uint64(b[24:]))
	return nil
}

// DecodeTable reads a whole table of own, and what a head would say of it.
func DecodeTable(own Writer, id ID, p []byte) ([]Entry, Table, error) {
	t := Table{ID: id, Len: int64(len(p))}
	if err := t.readTrailer(p[max(0, len(p)-trailerSize):]); err != nil {
		return nil, t, err
	}
	if t.Directory < 1 || t.Directory > t.Len-trailerSize {
		return nil, t, fmt.Errorf("table %s: directory at %d: %w", id, t.Directory, cas.ErrCorrupt)
	}
	d, err := openDirectory(own, t, p[t.Directory:])
	if err != nil {
		return nil, t, err
	}
	var entries []Entry
	for _, b := range d.Blocks {
		r := newReader(p[b.Off:b.Off+b.Len], "table "+id.String())
		entries = append(entries, d.readEntries(r, maxBlockPaths)...)
		if err := r.End(); err != nil {
			return nil, t, err
		}
	}
	again, t, err := EncodeTable(own, id, entries)
	if err != nil {
		return nil, t, corrupt(err)
	}
	if err := checkSame("table "+id.String(), p, again); err != nil {
		return nil, t, err
	}
	return entries, t, nil
}
