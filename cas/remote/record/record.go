// Package record is what the objects of a remote say besides the bytes of checkpoints: where the records of a
// file lie (Plan), what a writer says of each name (Entry), the two objects that hold entries, and what
// collectors note (State, Epoch, Aging). A Table never changes, and a Head is a writer's one object that
// does. The package also makes and parses all keys. It turns bytes into values and back, and reads nothing
// itself.
//
// A remote may be hostile. So memory is bounded by the bytes that were fetched before it is taken, and each
// value has one encoding: a decoder encodes again what it has read, and refuses what is not the same. Errors
// of decoders wrap cas.ErrCorrupt, or cas.ErrNewer for a later version. Encoders refuse what a decoder would
// refuse, with cas.ErrTooLarge where there is too much of it.
//
// # Keys
//
//	heads/WRITER        a Head. WRITER is NAME.xxxxxxxx: NAME 1 to 40 of a-z 0-9 -, and 8 hex digits;
//	                    or @index, @archive, @exports
//	d/xx/ID             a data object: a segment of chunks and columns. ID is 32 hex digits, xx the first two
//	m/xx/ID             a meta object: a segment of manifests, lists, small chunks, plans, graphs
//	t/xx/ID             a Table
//	i/xx/ID             a shard of the index
//	gc/e/NNNNNNNN       epoch N in 8 hex digits, so that they are listed in order; there is no epoch 0
//	gc/state, gc/aging, format, hint, probe/WRITER
//
// Hex digits are of lower case. Nothing but a key itself is read as one: a parsed key makes the same key.
//
// # Numbers
//
//	number    an unsigned LEB128 varint of the fewest bytes, at most 2^63-1
//	zz        a signed number as an unsigned one: 0, -1, 1, -2 … are 0, 1, 2, 3 …
//	string    a number of bytes, and these
//	path      a string; see Paths
//
// Integers of a stated length are little-endian.
//
// # Paths
//
// A path begins with runs/ or exports/. It has at most 64 components and 4,096 bytes. A component has 1 to
// 255 bytes, none of them 0, and is neither "." nor "..". A run is a path's first two components.
//
// Paths are ordered by their components, so that what a folder holds stands behind it, together. Byte by byte
// that is: the slash comes before all other bytes.
//
//	runs/a  <  runs/a/3  <  runs/a/3/model.pt  <  runs/a/30  <  runs/a-b
//
// # Plan, version 2
//
// The places of all records that decoding one file reads, so that a reader asks no index. A plan is the
// content of a record, so it has at most 16 MiB - 1:
//
//	"CKP2"
//	manifest      32 bytes: its hash
//	size          number: bytes of the file
//	objects       number n, then n times, by ascending id
//	    id        16 bytes
//	    length    number: bytes << 1 | 1 for a meta object; at most 64 MiB
//	manifest      record
//	lists         number n, then n records, in the order of the manifest's objects
//	chunks        number n, then n places: of each different chunk, in the order in which manifest and lists
//	              first name it. Their raw lengths are the lists'
//	bases         number n, then n times, by ascending place, without overlap
//	    hash      the first 16 bytes, each once
//	    record    of at most 1 MiB raw
//	    kind      1 byte: number | kind << 4. The number, 0 to 7, is that of package segment, the kind is
//	              cas.Chunk, cas.List or cas.Manifest
//	against       number n: 0, or as many as chunks and bases together. n times, for each chunk and then each
//	              base: number 0 to 2 of the records that it is stored against, and for each of these: zz:
//	              its number less the one after that of the record named before (the first: less that of
//	              the first base)
//
// In it chunks have the numbers from 1 on, in their order, and bases those behind them. So a reader asks for
// a chunk and all that it needs at once. Writers store manifests and lists alone.
//
//	record        place, zz: raw bytes, 1 to 16 MiB - 1, less those of the record before (the first: less 0)
//	place         number stored << 1 | c, stored being 1 to 16 MiB - 1
//	    c = 1     it begins where the place before ended, in the same object
//	    c = 0     zz: number of its object less that of the place before (the first: 0);
//	              zz: (its offset less the end of the place before; in another object and in the first: its
//	              offset) / 8
//
// An offset is that of the record's header, a multiple of 8 and at least segment.FileHeaderSize. A record
// takes segment.Size(stored) bytes and lies within its object. Each object has a place in it.
//
// A record with bases finds each of them in the plan, with a lower number of package segment than its own.
// Which these are its payload shows, and nothing that the plan says of that is relied on.
//
// # Entry
//
// Entries stand in a list, ascending by path, and of a path by origin. The objects and writers that they name
// are numbers of the dictionary and of the list of writers of the head or table that they are in.
//
//	path          number: bytes shared with the path before, as many as there are; string: the rest
//	kind          1 byte: 0 file, 1 symbolic link, 2 folder, 3 tombstone, 4 tombstone with what it removed;
//	              | 8 inline, 16 model, 32 over, 64 metrics
//	origin        writer: whose entry it is. Only @archive has entries of others
//	version       number ≥ 1: the origin's Lamport clock when it was written
//	mode          number: at most 0777; not of tombstones
//	mtime         zz: ns since 1970; not of tombstones
//	of a tombstone of kind 4:
//	    time      zz: ns since 1970, for people
//	    removed   what had the name: kind (0 to 2, not over), origin of any writer, and so on up to metrics.
//	              Nothing keeps the objects among its deps
//	of a file:
//	    size      number: bytes
//	    inline    with flag 8: the bytes, at most 2 KiB; else
//	    manifest  32 bytes, not zero
//	    plan      ref
//	    deps      number n, then n times, ascending: number of objects of the dictionary between this one and
//	              the one before (the first: before this one). They are all objects of the plan, and those in
//	              which the plan's record and the graph's lie
//	    model     with flag 16, not inline: number of bytes, and in these
//	        parent    parent; the path is "" when there is none
//	        how       string: how it is known, 1 to 32 printable ASCII characters; "" exactly without parent
//	        merged    number n, at most 1,024, then n parents
//	        graph     number n, at most 1,024, then n times: 32 bytes of hash, ref
//	        source    string: what the graph was read from, at most 8 KiB
//	of a link:
//	    target    string: 1 to 4,095 bytes, none 0
//	of a folder:
//	    attrs     number n, then n times, by ascending name: string name, string value. Names are of 6 to 255
//	              bytes, begin with "user." and not with "user.ckptfs"; values have at most 64 KiB
//	metrics       with flag 64, of files and folders: number n, 1 to 4,096, then n times, by ascending name:
//	              string name, 8 bytes float64. Names are of 1 to 255 bytes of UTF-8 without control
//	              characters. There is one NaN, 7ff8000000000001
//	over          with flag 32: number n ≥ 1, then n times, by ascending number of the writer: writer, number
//	              version ≥ 1: what of other writers the entry replaces, knowingly
//
//	writer        number: 0 is the head's own, n is number n - 1 of the list of writers
//	ref           number: object of the dictionary; number: offset / 8; number: stored bytes
//	parent        path; unless that is "", string: its manifest, 32 bytes, or none
//
// An entry has at most 1 MiB. The records of plans and graphs lie in meta objects.
//
// Deps are distances and no ranges: ids are random, so that two of a file are seldom neighbours in a
// dictionary of more than a few files. Where they are, a range of two bytes would stand for more memory than
// was fetched.
//
// # Table, version 2
//
//	0
//	├── block ──┼── block ──┼ … ┼── directory ──┼── trailer ──┤
//
// A block is a list of entries. All blocks together are one list, but that sharing begins again in each. A
// block goes on until the next entry would make it longer than 64 KiB, or its paths longer than 1 MiB in all.
// So one that is longer than 64 KiB has one entry.
//
// Directory:
//
//	runs          number n, then n times, ascending
//	    name      path: "runs/a"
//	    block     number of the block with its first entry, from 0
//	    entries   number
//	    bytes     number: of its files; 2^63-1 if it is more
//	    newest    zz: the latest mtime of its entries; 0 where they are all tombstones
//	dictionary    number n, then n times 16 bytes: ids of objects, ascending; each is among some entry's deps
//	writers       number n, then n strings, ascending; each in some entry, and not the own
//	blocks        number n, then n times
//	    first     path: of its first entry
//	    length    number: bytes
//	    sum       16 bytes: the first of its BLAKE3
//
// Trailer, 64 bytes:
//
//	 0  8  magic "ckpttabl"
//	 8  2  version: 2
//	10  6  0
//	16  8  offset of the directory, which ends where the trailer begins
//	24  8  number of entries
//	32 24  0
//	56  4  CRC-32C of the directory
//	60  4  CRC-32C of bytes 0 to 59
//
// A head names a table with the BLAKE3 of all from the directory on. So a reader of one run gets the
// directory and the blocks with that run, and has checked all that it read.
//
// # Head, version 2
//
// At most 1 MiB:
//
//	 0  8  magic "ckpthead"
//	 8  2  version: 2
//	10  6  0
//	16 16  remote: its id
//	32 16  instance: of the local store that writes it
//	48 16  commit: random, new with each commit; a stamp keeps it
//	64  8  sequence: number of the commit
//	72  4  stamp: the epoch that the writer knew, or a collector wrote
//	76  4  flags: 1 folded
//	80  8  clock: Lamport; no entry's version is greater
//	88  8  time: ns since 1970, for people
//	96     runs          number n, then n paths, ascending: of the entries of the tail. They end in the first
//	                     16 KiB, so that these show whether the head concerns a reader
//	       tables        number n, then n times, newest first
//	           id        16 bytes, each once
//	           length    number: bytes, at most 64 MiB
//	           directory number: its offset
//	           hash      32 bytes: BLAKE3 of all from there on
//	           entries   number
//	           first     path
//	           last      path
//	       dictionary    as in a table
//	       writers       as in a table
//	       tail          a list of entries to the end: those since the newest table. Its paths have at most
//	                     16 MiB
//	   -4  4  CRC-32C of all before
//
// Of a path and origin the tail wins over the tables, and a table over those behind it.
//
// A head of 0 bytes is that of a writer which is registered and has no commit: the zero Head. If a collector
// comes before the first commit, it writes remote, stamp, perhaps the flag, and else zeros. From the first
// commit on, sequence, remote, instance and commit are not zero. A folded head has neither tables nor tail.
//
// The head of @index has, from 96 on to the checksum:
//
//	made          number: an epoch; see Index.Made
//	seen          number n, then n times, ascending: string writer; number version ≥ 1
//	shards        number n, then n times, ascending by first
//	    id        16 bytes, each once
//	    first     8 bytes, big-endian: the least digest of its items
//	    items     number
//
// # Shard, version 1
//
// A part of the index of what the files of a remote have. A digest is the first 8 bytes of a hash: of an
// object of a manifest, or of a manifest. A shard has the items of all digests from its first on, up to the
// first of the next shard: 1 to 2^20 items, by ascending digest, each digest once; of 512 a block, the last
// of fewer:
//
//	 0  8  digest
//	 8 16  id of the meta object in which a plan lies
//	24  4  offset / 8 of the plan's record
//	28  4  stored bytes of it
//
// They are followed by the directory, which has for each block
//
//	0  8  digest of the first item
//	8  4  CRC-32C of the block
//
// and by the trailer, 64 bytes:
//
//	 0  8  magic "ckptshrd"
//	 8  2  version: 1
//	10  6  0
//	16 16  remote: its id
//	32  8  number of items
//	40 16  0
//	56  4  CRC-32C of the directory
//	60  4  CRC-32C of bytes 0 to 59
//
// Items name no object of a dictionary: that would be as long as the remote has files, in each shard, and
// a reader who looks one digest up would have to read it.
//
// # State, epoch and aging, version 1
//
// What collectors of unreferenced objects note (package sweep). Each begins and ends with
//
//	 0  8  magic "ckptstat", "ckptepoc", "ckptagin"
//	 8  2  version: 1
//	10  6  0
//	16 16  remote: its id
//	   …
//	-4  4  CRC-32C of all before
//
// gc/state, which is there from the first epoch on:
//
//	32  4  number of the newest epoch that is published
//
// gc/e/NNNNNNNN, at most 64 MiB. It is made with what is condemned, and overwritten once with what of that
// is deleted:
//
//	32  4  epoch
//	36  4  flags: 1 deleted
//	40  8  time: ns since 1970, for people
//	48     collector     string: a writer
//	       objects       keys; at least one, unless deleted
//
// gc/aging, at most 64 MiB:
//
//	32     times         number n, then n times zz, ascending: s since 1970; each of some object
//	       objects       keys, each followed by a number: of the time since when it is unreferenced
//
//	keys   for each of d, i, m, t: number n, then n times, by ascending id: 16 bytes id
package record

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"ckptfs/cas"
)

// MaxObject bounds the bytes of an object, all but heads.
const MaxObject = 64 << 20

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

func crc(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

func num(p []byte, v int64) []byte { return binary.AppendUvarint(p, uint64(v)) }

func zz(p []byte, v int64) []byte { return binary.AppendVarint(p, v) }

func str(p []byte, s string) []byte { return append(num(p, int64(len(s))), s...) }

// corrupt says that err is one of bytes that were read.
func corrupt(err error) error { return fmt.Errorf("%w: %w", err, cas.ErrCorrupt) }

// checkVersion reads the version of a head or a table.
func checkVersion(of string, p []byte, version uint16) error {
	switch v := le.Uint16(p); {
	case v > version:
		return fmt.Errorf("%s: version %d: %w", of, v, cas.ErrNewer)
	case v < version:
		return fmt.Errorf("%s: version %d: %w", of, v, cas.ErrCorrupt)
	}
	return nil
}

// checkSame holds that what was read is the one encoding of its value.
func checkSame(of string, read, encoded []byte) error {
	if !bytes.Equal(read, encoded) {
		return fmt.Errorf("%s: not as it is written: %w", of, cas.ErrCorrupt)
	}
	return nil
}
