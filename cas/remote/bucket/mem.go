package bucket

import (
	"bytes"
	"context"
	"hash/crc32"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Mem is a bucket in memory that does all that Bucket promises. The zero value is empty and ready for use.
type Mem struct {
	// Now is its clock; time.Now if nil.
	Now func() time.Time

	mu      sync.Mutex
	objects map[string]object
	puts    int // makes versions
}

type object struct {
	data     []byte // never changed
	version  Version
	modified time.Time
}

func (m *Mem) now() time.Time {
	if m.Now != nil {
		return m.Now()
	}
	return time.Now()
}

func (m *Mem) find(op, key string) (object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[key]
	if !ok {
		return o, &Error{Op: op, Key: key, Kind: ErrNotFound}
	}
	return o, nil
}

func (o object) info(key string) Info {
	return Info{Key: key, Size: int64(len(o.data)), Version: o.version, Modified: o.modified}
}

// Get reads of the object as it is at this moment, whatever becomes of it while it is read.
func (m *Mem) Get(ctx context.Context, key string, off, n int64, unless Version) (
	io.ReadCloser, Info, error) {
	if err := ctx.Err(); err != nil {
		return nil, Info{}, &Error{Op: "get", Key: key, Kind: ErrUnreachable, Err: err}
	}
	o, err := m.find("get", key)
	if err != nil {
		return nil, Info{}, err
	}
	info := o.info(key)
	info.Date = m.now().Truncate(time.Second)
	if unless != "" && unless == o.version {
		return nil, info, &Error{Op: "get", Key: key, Kind: ErrUnchanged}
	}
	var data []byte
	switch whole := off == 0 && n == All; {
	case n == 0:
	case !whole && off >= info.Size:
		return nil, info, &Error{Op: "get", Key: key, Kind: ErrRange}
	case n == All:
		data = o.data[off:]
	default:
		data = o.data[off:min(off+n, info.Size)]
	}
	return io.NopCloser(bytes.NewReader(data)), info, nil
}

// Put reads the whole body before it looks at the condition.
func (m *Mem) Put(ctx context.Context, key string, body Body, cond Cond) (Version, error) {
	fail := func(kind, err error) (Version, error) {
		return "", &Error{Op: "put", Key: key, Kind: kind, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return fail(ErrUnreachable, err)
	}
	r, err := body.Open()
	if err != nil {
		return fail(ErrRefused, err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	switch {
	case err != nil:
		return fail(ErrRefused, err)
	case int64(len(data)) != body.Size, crc32.Checksum(data, castagnoli) != body.CRC32C:
		return fail(ErrDamaged, nil)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old, there := m.objects[key]
	switch {
	case cond.Absent && there, cond.Version != "" && there && old.version != cond.Version:
		return fail(ErrPrecondition, nil)
	case cond.Version != "" && !there:
		return fail(ErrNotFound, nil)
	}
	if m.objects == nil {
		m.objects = map[string]object{}
	}
	m.puts++
	o := object{data: data, version: Version(strconv.Itoa(m.puts)), modified: m.now().Truncate(time.Second)}
	m.objects[key] = o
	return o.version, nil
}

// Delete removes all keys at one moment.
func (m *Mem) Delete(ctx context.Context, keys []string) error {
	if err := ctx.Err(); err != nil {
		return &Error{Op: "delete", Kind: ErrUnreachable, Err: err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range keys {
		delete(m.objects, k)
	}
	return nil
}

// List lists the objects that are there when it begins.
func (m *Mem) List(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(Info{}, &Error{Op: "list", Key: prefix, Kind: ErrUnreachable, Err: err})
			return
		}
		for _, info := range m.list(prefix, after) {
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (m *Mem) list(prefix, after string) (found []Info) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, o := range m.objects {
		if strings.HasPrefix(k, prefix) && k > after {
			found = append(found, o.info(k))
		}
	}
	slices.SortFunc(found, func(a, b Info) int { return strings.Compare(a.Key, b.Key) })
	return found
}
