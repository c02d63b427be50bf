package sweep_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"slices"
	"strings"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

// bent is a bucket that makes of the code of a process what it must not be.
type bent struct {
	bucket.Bucket
	get    func(key string, unless bucket.Version) (p []byte, version bucket.Version, err error, bends bool)
	put    func(key string, p []byte, cond *bucket.Cond) (version bucket.Version, bends bool)
	before func(key string) // a request for it
}

func (b *bent) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	if b.before != nil {
		b.before(key)
	}
	if b.get != nil {
		if p, version, err, bends := b.get(key, unless); bends {
			info := bucket.Info{Key: key, Size: int64(len(p)), Version: version, Date: day}
			return io.NopCloser(bytes.NewReader(p)), info, err
		}
	}
	return b.Bucket.Get(ctx, key, off, n, unless)
}

func (b *bent) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	if b.put != nil {
		r, err := body.Open()
		must(err)
		p, err := io.ReadAll(r)
		must(err)
		if version, bends := b.put(key, p, &cond); bends {
			return version, nil
		}
	}
	return b.Bucket.Put(ctx, key, body, cond)
}

func (b *bent) read(key string) []byte {
	p, _, err := bucket.Read(context.Background(), b.Bucket, key, record.MaxObject, "")
	if err != nil {
		return nil
	}
	return p
}

func isHead(key string) bool { return strings.HasPrefix(key, record.Heads) }

// collectors bends the buckets of collectors, pushers those of one pusher.
func collectors(bend func(b *bent)) wrapper { return bends(bend, "car", "dan") }
func pusher(bend func(b *bent)) wrapper     { return bends(bend, "bob") }

func bends(bend func(b *bent), processes ...string) wrapper {
	return func() func(string, bucket.Bucket) bucket.Bucket {
		return func(process string, b bucket.Bucket) bucket.Bucket {
			if !slices.Contains(processes, process) {
				return b
			}
			x := &bent{Bucket: b}
			bend(x)
			return x
		}
	}
}

// epochs has a process read epochs as told: of each what they name, without what hidden says.
func (b *bent) epochs(hidden func(epoch uint32, k record.Key) bool) {
	b.get = func(key string, _ bucket.Version) ([]byte, bucket.Version, error, bool) {
		n, ok := record.ParseEpoch(key)
		if !ok {
			return nil, "", nil, false
		}
		e, err := record.DecodeEpoch(n, b.read(key))
		if err != nil {
			return nil, "", &bucket.Error{Kind: bucket.ErrUnreachable}, true
		}
		e.Deleted = true
		e.Objects = slices.DeleteFunc(e.Objects, func(k record.Key) bool { return hidden(n, k) })
		p, err := e.Encode()
		must(err)
		return p, "1", nil, true
	}
}

func noStamps(b *bent) {
	b.put = func(key string, _ []byte, _ *bucket.Cond) (bucket.Version, bool) {
		return "stamped", isHead(key)
	}
}

// noSecondMark has a collector see heads as it read them at first.
func noSecondMark(b *bent) {
	b.get = func(key string, unless bucket.Version) ([]byte, bucket.Version, error, bool) {
		return nil, unless, &bucket.Error{Kind: bucket.ErrUnchanged}, isHead(key) && unless != ""
	}
}

// secondMarkFirst has a collector see heads as they were before it stamped the first.
func secondMarkFirst(b *bent) {
	stamped := false
	b.put = func(key string, _ []byte, _ *bucket.Cond) (bucket.Version, bool) {
		stamped = stamped || isHead(key)
		return "", false
	}
	b.get = func(key string, unless bucket.Version) ([]byte, bucket.Version, error, bool) {
		return nil, unless, &bucket.Error{Kind: bucket.ErrUnchanged}, stamped && isHead(key) && unless != ""
	}
}

// stateFirst has a pusher know what was condemned before it read its head.
func stateFirst(b *bent) {
	newest := uint32(0)
	b.before = func(key string) {
		if isHead(key) {
			newest = 0
			if s, err := record.DecodeState(b.read(record.StateKey)); err == nil {
				newest = s.Epoch
			}
		}
	}
	b.epochs(func(n uint32, _ record.Key) bool { return n > newest })
}

// blindRetry has a pusher look once only at what is condemned.
func blindRetry(b *bent) {
	looks := 0
	b.before = func(key string) {
		if key == record.StateKey {
			looks++
		}
	}
	b.epochs(func(uint32, record.Key) bool { return looks > 1 })
}

// ownTrusted has a pusher rely on what it put, whatever became of it.
func ownTrusted(b *bent) {
	own := map[string]bool{}
	b.put = func(key string, _ []byte, _ *bucket.Cond) (bucket.Version, bool) {
		own[key] = true
		return "", false
	}
	b.epochs(func(_ uint32, k record.Key) bool { return own[k.String()] })
}

func unchecked(b *bent) { b.epochs(func(uint32, record.Key) bool { return true }) }

func noIfMatch(b *bent) {
	b.put = func(key string, _ []byte, cond *bucket.Cond) (bucket.Version, bool) {
		if isHead(key) {
			cond.Version = ""
		}
		return "", false
	}
}

// lateRegistration has a writer's head made by its first commit.
func lateRegistration(b *bent) {
	registered := false
	b.put = func(key string, p []byte, cond *bucket.Cond) (bucket.Version, bool) {
		switch {
		case !isHead(key):
			return "", false
		case len(p) == 0:
			registered = true
			return "none", true
		case cond.Version == "none":
			*cond = bucket.Cond{Absent: true}
		}
		return "", false
	}
	b.get = func(key string, _ bucket.Version) ([]byte, bucket.Version, error, bool) {
		return nil, "none", nil, registered && isHead(key) && b.read(key) == nil
	}
}

// deletesFirst has a collector delete before it writes down what.
func deletesFirst(b *bent) {
	b.put = func(key string, p []byte, _ *bucket.Cond) (bucket.Version, bool) {
		if n, ok := record.ParseEpoch(key); ok {
			e, err := record.DecodeEpoch(n, p)
			must(err)
			for _, k := range e.Objects {
				if e.Deleted {
					b.Delete(context.Background(), []string{k.String()})
				}
			}
		}
		return "", false
	}
}

// oldNames has the objects of a push always the same names: its draws are a commit, an object, a commit, …
type oldNames struct{ draws uint64 }

func (o *oldNames) Read(p []byte) (int, error) {
	clear(p)
	if o.draws++; o.draws%2 == 1 {
		binary.LittleEndian.PutUint64(p, o.draws)
	}
	p[len(p)-1] = 7
	return len(p), nil
}

// noEpochs has a process believe that nothing was ever condemned.
func noEpochs(b *bent) {
	b.get = func(key string, _ bucket.Version) ([]byte, bucket.Version, error, bool) {
		return nil, "", &bucket.Error{Kind: bucket.ErrNotFound}, key == record.StateKey
	}
}
