// Package bucket is the seam between a remote and the object store that holds it: four requests, and no
// more of S3 than these. s3 speaks to real engines; Mem is a twin in memory.
//
// What a remote may rely on, what package probe therefore asks of an engine, and what Mem gives:
//
//   - an object is there as a whole or not at all, and stays as it was put until it is put again or deleted;
//   - a Put with a condition is done if the condition holds at that moment, and else changes nothing, however
//     many others put the same key;
//   - a Put that was acknowledged is seen by every Get and List that begins after it, and so is a Delete;
//   - two contents of a key that follow each other never have the same Version.
//
// What it may not rely on: that a request whose answer was lost was not done, or that it will not be done
// later. Such a Put is ErrDoubt, and settled by reading, never by putting again without looking.
package bucket

import (
	"bytes"
	"context"
	"hash/crc32"
	"io"
	"iter"
	"time"
)

// MaxKey is the length, in bytes, that no key exceeds.
const MaxKey = 1024

// Bucket is a prefix of a bucket; keys are below it. Errors are *Error, of one of the kinds of this
// package. All methods may be called by several goroutines at once.
type Bucket interface {
	// Get reads n bytes of an object from off on; to its end if n is All or the object ends before; with n
	// == 0 nothing but its Info. ErrUnchanged if its version is unless; ErrRange if no byte of a range is
	// in the object. The reader gives as many bytes as were asked for or an error, an *Error, too; the
	// caller closes it.
	Get(ctx context.Context, key string, off, n int64, unless Version) (io.ReadCloser, Info, error)
	// Put makes or replaces an object and returns its version.
	Put(ctx context.Context, key string, body Body, cond Cond) (Version, error)
	// Delete removes objects. One that is not there is no error.
	Delete(ctx context.Context, keys []string) error
	// List yields the objects whose keys begin with prefix and are behind after, by ascending key. It ends
	// at the first error.
	List(ctx context.Context, prefix, after string) iter.Seq2[Info, error]
}

// All is the n of a Get that reads to the end.
const All = -1

// Version tells one content of a key from another: an ETag, or whatever the engine has instead. It says
// nothing else. "" is none.
type Version string

// Info is what an engine tells of an object.
type Info struct {
	Key     string
	Size    int64 // of the whole object
	Version Version
	// Date is when the engine answered, by its clock, to the second; zero in a List.
	Date time.Time
	// Modified is when the object was put, by the engine's clock.
	Modified time.Time
	// Cached: no engine was asked, what was kept of the object is read.
	Cached bool
}

// Kept is what an engine keeps of what was deleted or overwritten, by rules of its own. Some Buckets tell.
type Kept struct {
	Versioned bool  `json:"versioned"` // it keeps versions, or did until that was suspended
	Objects   int64 `json:"objects"`
	Bytes     int64 `json:"bytes"`
}

// Body is what a Put stores.
type Body struct {
	Size int64
	// CRC32C is sent along, so that the engine refuses what was damaged on the way (ErrDamaged).
	CRC32C uint32
	// Immutable bodies may be kept by caches for ever, others not at all.
	Immutable bool
	// Open returns a reader of the whole body. A Put may call it more than once.
	Open func() (io.ReadCloser, error)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Bytes is a body of bytes in memory.
func Bytes(b []byte) Body {
	return Body{Size: int64(len(b)), CRC32C: crc32.Checksum(b, castagnoli),
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}
}

// Cond is the condition of a Put. The zero value is none.
type Cond struct {
	// Absent: there is no object of this key. ErrPrecondition if there is one.
	Absent bool
	// Version: the object has this version. ErrPrecondition if it has another one; if there is none,
	// ErrPrecondition or ErrNotFound.
	Version Version
}

// Past is b past every cache and mirror between here and the engine, for a reader that got wrong bytes.
func Past(b Bucket) Bucket {
	if p, ok := b.(interface{ Past() Bucket }); ok {
		return p.Past()
	}
	return b
}

// Read gets a whole object of at most limit bytes (ErrTooLarge).
func Read(ctx context.Context, b Bucket, key string, limit int64, unless Version) ([]byte, Info, error) {
	r, info, err := b.Get(ctx, key, 0, All, unless)
	if err != nil {
		return nil, info, err
	}
	defer r.Close()
	if info.Size > limit {
		return nil, info, &Error{Op: "get", Key: key, Kind: ErrTooLarge}
	}
	p := make([]byte, info.Size)
	if _, err := io.ReadFull(r, p); err != nil {
		return nil, info, err
	}
	return p, info, nil
}
