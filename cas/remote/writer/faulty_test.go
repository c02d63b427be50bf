package writer

import (
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"sync"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

// faulty is a bucket whose requests go wrong.
type faulty struct {
	bucket.Bucket
	// fault says what becomes of a request; nil: it is done.
	fault func(op, key string, n int) fault

	mu   sync.Mutex
	n    int             // requests so far
	put  map[string]bool // keys that were put with Absent, ever
	late []func()
	log  []string
}

type fault int

const (
	done     fault = iota
	dead           // neither this nor any later request is done
	lost           // it is done, and the answer is lost
	never          // it is not done, and the answer is lost
	delayed        // it is done when settle is called, and the answer is lost
	conflict       // 409, and it is not done
	again          // it is done twice, and the second answer comes
	damaged        // the body is damaged on the way
	denied
	noRoom
	otherTag // it is done, and the answer has the version of something else
)

var errDead = errors.New("dead")

func (f *faulty) decide(op, key string) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	f.log = append(f.log, op+" "+key)
	if f.fault == nil {
		return done
	}
	return f.fault(op, key, f.n)
}

func fail(op, key string, kind error) error { return &bucket.Error{Op: op, Key: key, Kind: kind} }

func (f *faulty) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	if f.decide("get", key) == dead {
		return nil, bucket.Info{}, errDead
	}
	return f.Bucket.Get(ctx, key, off, n, unless)
}

func (f *faulty) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Info, error] {
	return f.Bucket.List(ctx, prefix, after)
}

func (f *faulty) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	what := f.decide("put", key)
	if what == dead {
		return "", errDead
	}
	f.mu.Lock()
	if f.put == nil {
		f.put = map[string]bool{}
	}
	_, _, isObject := record.ParseObject(key)
	twice := cond.Absent && f.put[key]
	f.put[key] = f.put[key] || cond.Absent
	f.mu.Unlock()
	if twice || isObject && !cond.Absent || isObject != body.Immutable {
		panic(key + " is put otherwise than once and for all")
	}
	do := func() (bucket.Version, error) { return f.Bucket.Put(ctx, key, body, cond) }
	switch what {
	case lost:
		if _, err := do(); err != nil {
			return "", err
		}
	case delayed:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.late = append(f.late, func() { f.Bucket.Put(context.Background(), key, body, cond) })
	case conflict:
		return "", fail("put", key, bucket.ErrConflict)
	case again:
		do()
		return do()
	case damaged:
		return "", fail("put", key, bucket.ErrDamaged)
	case denied:
		return "", fail("put", key, bucket.ErrDenied)
	case noRoom:
		return "", fail("put", key, bucket.ErrFull)
	case otherTag:
		v, err := do()
		return v + "0", err
	case done:
		return do()
	}
	return "", fail("put", key, bucket.ErrDoubt)
}

// settle has late requests done.
func (f *faulty) settle() {
	for _, do := range f.late {
		do()
	}
	f.late = nil
}

// once lets the first request of an operation on a key that begins so go wrong.
func (f *faulty) once(op, prefix string, what fault) {
	spent := false
	f.fault = func(o, key string, n int) fault {
		if spent || o != op || !strings.HasPrefix(key, prefix) {
			return done
		}
		spent = true
		return what
	}
}
