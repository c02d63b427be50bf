// Package arrow lays out Arrow IPC: files (Feather version 2) and streams (the .arrow files of Hugging Face's
// datasets).
//
//	"ARROW1" 00 00       a file only
//	FF FF FF FF          of each message: i32 n, then n bytes: a flatbuffer Message, padded to 8
//	                     bodyLength bytes: the buffers of a record batch or a dictionary batch, where the
//	                     message says
//	…
//	FF FF FF FF 00 00 00 00
//	footer, i32, "ARROW1"       a file only
//
//	Message          0 version, 1 header type, 2 header, 3 bodyLength
//	RecordBatch      1 nodes, 2 buffers: (i64 offset in the body, i64 length)      header type 3
//	DictionaryBatch  1 data: a RecordBatch                                         header type 2
//
// A buffer of at least 4 KiB, compressed or not, is a Data region: a column that occurs in two files is
// found, whatever lies before it. Columns are no tensors, so there are none, and the layout is partial. All
// else is Blob.
//
// # What is recognised
//
// Little-endian messages in the framing of Arrow 0.15 and later, that begin with a schema. Where a message
// does not hold together, a file ends early, or buffers overlap, the file is a Blob. At most 65,536 messages
// of at most 16 MiB each (64 MiB together) and 1,048,576 buffers are read, 16 bytes each; bodies are not.
package arrow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"ckptfs/formats"
)

const (
	magic        = "ARROW1\x00\x00"
	continuation = "\xff\xff\xff\xff"
	maxMessages  = 1 << 16
	maxMessage   = 16 << 20
	maxMetadata  = 64 << 20
	maxBuffers   = 1 << 20
	smallest     = 4 << 10

	headerSchema     = 1
	headerDictionary = 2
	headerBatch      = 3
)

// Format is Arrow's entry in the table of formats.
var Format = formats.Format{
	Parser: Parser{},
	Sniff:  Sniff,
	Names: []formats.Name{{
		Name: Parser{}.Name(),
		Note: "a table: its columns are stored as buffers, which are no tensors",
	}},
}

// Parser is the parser of Arrow IPC files and streams.
type Parser struct{}

// Name returns "arrow".
func (Parser) Name() string { return "arrow" }

func reject(format string, args ...any) error {
	return fmt.Errorf("arrow: %w: %s", formats.ErrNotFormat, fmt.Sprintf(format, args...))
}

// Sniff reports whether a file that starts with p may be one.
func Sniff(p []byte, _ int64) bool {
	return len(p) >= 8 && (string(p[:8]) == magic ||
		string(p[:4]) == continuation && p[7] == 0 && p[4]|p[5]|p[6] != 0)
}

// Parse returns the layout of a file or a stream.
func (p Parser) Parse(r io.ReaderAt, size int64) (*formats.Layout, error) {
	var head [8]byte
	if size < int64(len(head)) {
		return nil, reject("%d bytes", size)
	}
	if err := formats.ReadFull(r, head[:], 0); err != nil {
		return nil, err
	}
	if !Sniff(head[:], size) {
		return nil, reject("no magic")
	}
	w := walker{r: r, size: size}
	if string(head[:]) == magic {
		w.at = int64(len(magic))
	}
	for n := 0; ; n++ {
		if n > maxMessages {
			return nil, reject("more than %d messages", maxMessages)
		}
		more, err := w.message(n == 0)
		if errors.Is(err, errFlat) {
			err = reject("message %d: %v", n, err)
		}
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
	}
	l := &formats.Layout{Format: p.Name(), Partial: true}
	if err := l.Cover(size, w.data); err != nil {
		return nil, reject("%v", err)
	}
	return l, nil
}

// walker goes from message to message.
type walker struct {
	r        io.ReaderAt
	size, at int64
	metadata int64 // read so far
	data     []formats.Range
}

// message reads the message at w.at and moves behind it. It returns false at the end.
func (w *walker) message(first bool) (bool, error) {
	if w.at == w.size { // a stream need not say that it ends
		return false, nil
	}
	var head [8]byte
	if w.size-w.at < int64(len(head)) {
		return false, reject("%d bytes after the last message", w.size-w.at)
	}
	if err := formats.ReadFull(w.r, head[:], w.at); err != nil {
		return false, err
	}
	n := int64(int32(binary.LittleEndian.Uint32(head[4:])))
	if string(head[:4]) != continuation || n < 0 || n > maxMessage || n > w.size-w.at-8 {
		return false, reject("no message at %d", w.at)
	}
	if n == 0 {
		return false, nil
	}
	if w.metadata += n; w.metadata > maxMetadata {
		return false, reject("messages of more than %d bytes", maxMetadata)
	}
	p := make([]byte, n)
	if err := formats.ReadFull(w.r, p, w.at+8); err != nil {
		return false, err
	}
	body := w.at + 8 + n
	m, err := root(p)
	if err != nil {
		return false, err
	}
	kind, err := m.number(1, 1)
	if err != nil {
		return false, err
	}
	length, err := m.number(3, 8)
	if err != nil {
		return false, err
	}
	if first != (kind == headerSchema) || length > uint64(w.size-body) {
		return false, reject("message of type %d, %d bytes long, at %d", kind, length, w.at)
	}
	if kind == headerBatch || kind == headerDictionary {
		batch, err := m.table(2)
		if err == nil && kind == headerDictionary {
			batch, err = batch.table(1)
		}
		if err != nil {
			return false, err
		}
		if err := w.buffers(batch, body, int64(length)); err != nil {
			return false, err
		}
	}
	w.at = body + int64(length)
	return true, nil
}

// buffers notes the buffers of a batch whose body is the n bytes at body.
func (w *walker) buffers(batch table, body, n int64) error {
	const width = 16
	list, err := batch.vector(2, width)
	if err != nil {
		return err
	}
	for ; len(list) > 0; list = list[width:] {
		off, length := binary.LittleEndian.Uint64(list), binary.LittleEndian.Uint64(list[8:])
		if off > uint64(n) || length > uint64(n)-off {
			return reject("buffer [%d, +%d) of a body of %d", off, length, n)
		}
		if length < smallest {
			continue
		}
		if len(w.data) == maxBuffers {
			return reject("more than %d buffers", maxBuffers)
		}
		w.data = append(w.data, formats.Range{Off: body + int64(off), Len: int64(length)})
	}
	return nil
}
