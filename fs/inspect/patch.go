package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/view"
)

// Patch is a safetensors file of what changed from one checkpoint to another: for each tensor that changed
// the positions and the new values of the elements that did,
//
//	NAME.idx   int32, ascending: which elements of the tensor, row-major, changed
//	NAME.val   of the tensor's type: what they are now
//
// or the tensor NAME itself: where it is new, has another type or shape, elements that are no whole bytes,
// more than 2^31 of them, or so many that changed that it is the shorter. Its metadata are those that TRL's
// delta engine reads and writes (encoding "raw"), and
//
//	base, step  the paths of the two checkpoints
//	removed     the names, as a JSON list, of tensors that are gone
//
// What a Patch says stays as it was made, whatever becomes of the checkpoints. It lies in memory as long as
// it is small, and otherwise in a file without a name in the store's folder.
type Patch struct {
	header  []byte
	parts   []patchPart // ascending by start
	size    int64
	streams [2]patchStream
	reach   *reach
	made    []patchSource
	users   atomic.Int64
}

// The streams that a patch is written as. One lies behind the other's pieces in the file.
const (
	patchOfPositions = iota
	patchOfValues
)

type patchPart struct {
	start, n int64 // in the file
	at       patchPlace
}

// patchPlace is where the bytes of an entry begin in a stream.
type patchPlace struct {
	stream int
	off    int64
}

// patchStream is bytes in memory, and behind these in a file.
type patchStream struct {
	dir  *disk.Folder
	mem  []byte
	file *os.File
	n    int64
}

// patchMemory bounds what a stream has in memory.
const patchMemory = 8 << 20

// patchSource is a file that a patch was made of, as it was then.
type patchSource struct {
	f   File
	gen uint64
}

var errChanged = fmt.Errorf("a checkpoint is being written: %w", unix.ESTALE)

func noPatch(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{view.ErrNoView}, args...)...)
}

func newPatch(dir *disk.Folder) *Patch {
	p := &Patch{streams: [2]patchStream{{dir: dir}, {dir: dir}}}
	p.users.Store(1)
	return p
}

// remember notes what the files are that it is made of.
func (p *Patch) remember(r *reach) error {
	for _, f := range r.nodes {
		info, err := f.Info()
		if err != nil {
			return err
		}
		if info.View != nil {
			f = info.View.Source
			if info, err = f.Info(); err != nil {
				return err
			}
		}
		p.made = append(p.made, patchSource{f, info.Gen})
	}
	return nil
}

// Current reports whether the files that it was made of have the bytes that they had then.
func (p *Patch) Current() bool {
	for _, s := range p.made {
		if info, err := s.f.Info(); err != nil || info.Gen != s.gen {
			return false
		}
	}
	return true
}

// Files are those that it was made of, as long as it is open.
func (p *Patch) Files() (all []File) {
	for _, s := range p.made {
		all = append(all, s.f)
	}
	return all
}

// Retain adds a user; false when the last one has closed it.
func (p *Patch) Retain() bool {
	for {
		n := p.users.Load()
		if n == 0 {
			return false
		}
		if p.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Close ends it for a user: the first, or one of Retain.
func (p *Patch) Close() {
	if p.users.Add(-1) > 0 {
		return
	}
	if p.reach != nil {
		p.reach.close()
	}
	for i := range p.streams {
		if f := p.streams[i].file; f != nil {
			_ = f.Close()
		}
	}
}

// Size is the length of the file in bytes.
func (p *Patch) Size() int64 { return p.size }

// mark is where the next bytes of a stream will be.
func (p *Patch) mark(stream int) patchPlace { return patchPlace{stream, p.streams[stream].n} }

// reset takes back what was written since mark.
func (p *Patch) reset(to patchPlace) { p.streams[to.stream].n = to.off }

func (p *Patch) write(stream int, b []byte) error {
	s := &p.streams[stream]
	if s.n < patchMemory || s.dir == nil {
		if s.n < int64(len(s.mem)) { // behind a reset
			s.mem = s.mem[:s.n]
		}
		k := len(b)
		if s.dir != nil {
			k = min(k, int(patchMemory-s.n))
		}
		s.mem = append(s.mem, b[:k]...)
		s.n += int64(k)
		b = b[k:]
	}
	if len(b) == 0 {
		return nil
	}
	if s.file == nil {
		f, err := s.dir.Open(".", os.O_RDWR|unix.O_TMPFILE, 0o600)
		if err != nil {
			return fmt.Errorf("no room for what changed: %w", err)
		}
		s.file = f
	}
	if _, err := s.file.WriteAt(b, s.n-patchMemory); err != nil {
		return err
	}
	s.n += int64(len(b))
	return nil
}

// seal makes the file of the entries.
func (p *Patch) seal(entries []patched, metadata map[string]string) error {
	slices.SortFunc(entries, func(a, b patched) int { return safetensors.CompareSaved(a.Entry, b.Entry) })
	plain := make([]safetensors.Entry, len(entries))
	for i := range entries {
		plain[i] = entries[i].Entry
	}
	pairs := make([]safetensors.Pair, 0, len(metadata))
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		pairs = append(pairs, safetensors.Pair{Key: key, Value: metadata[key]})
	}
	header, err := safetensors.AppendSaved(nil, plain, pairs)
	if err != nil {
		return noPatch("%v", err)
	}
	p.header, p.size = header, int64(len(header))
	for i := range entries {
		n := plain[i].NumBytes()
		if n == 0 {
			continue
		}
		p.parts = append(p.parts, patchPart{p.size, n, entries[i].at})
		p.size += n
	}
	return nil
}

// ReadAt is io.ReaderAt's.
func (p *Patch) ReadAt(b []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, errors.New("negative offset")
	}
	if off < int64(len(p.header)) {
		n = copy(b, p.header[off:])
	}
	i, _ := slices.BinarySearchFunc(p.parts, off+int64(n), func(x patchPart, at int64) int {
		if x.start+x.n <= at {
			return -1
		}
		return 1
	})
	for ; n < len(b) && i < len(p.parts); i++ {
		x := &p.parts[i]
		skip := off + int64(n) - x.start
		k := int(min(int64(len(b)-n), x.n-skip))
		if err := p.streams[x.at.stream].readAt(b[n:n+k], x.at.off+skip); err != nil {
			return n, err
		}
		n += k
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (s *patchStream) readAt(b []byte, off int64) error {
	if off < int64(len(s.mem)) {
		k := copy(b, s.mem[off:])
		b, off = b[k:], off+int64(k)
	}
	if len(b) == 0 {
		return nil
	}
	if s.file == nil {
		return io.ErrUnexpectedEOF
	}
	_, err := s.file.ReadAt(b, off-patchMemory)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// maxRemoved bounds the text of the names that are gone, in bytes.
const maxRemoved = 1 << 20

// removedText is a JSON list of names, of the first ones where they are very many.
func removedText(names []string) string {
	size := 0
	for i, n := range names {
		if size += len(n); size > maxRemoved {
			names = names[:i]
			break
		}
	}
	text, err := json.Marshal(names)
	if err != nil { // which strings never give
		return "[]"
	}
	return string(text)
}

// bytesOf are the bytes of numbers, little-endian as this program's machines are.
func bytesOf(idx []int32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(idx))), 4*len(idx))
}
