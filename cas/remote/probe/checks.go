package probe

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"ckptfs/cas/remote/bucket"
)

// How much the checks do, and with Full.
const (
	connections            = 8
	rounds, fullRounds     = 8, 64
	increments, fullCounts = 64, 256
	large                  = 64 << 20
	pageSize               = 1000
)

func (p *probe) sees() error {
	v, err := p.put("seen", []byte("one"), bucket.Cond{})
	if err != nil {
		return err
	}
	if err := p.is("seen", []byte("one")); err != nil {
		return err
	}
	if err := p.lists(v); err != nil {
		return err
	}
	w, err := p.put("seen", []byte("two"), bucket.Cond{})
	switch {
	case err != nil:
		return err
	case v == w:
		return failed("two contents have the ETag %s", v)
	}
	if err := p.is("seen", []byte("two")); err != nil {
		return err
	}
	if err := p.b.Delete(p.ctx, []string{p.prefix + "seen", p.prefix + "never"}); err != nil {
		return answered("a deletion", err)
	}
	if err := p.is("seen", nil); err != nil {
		return err
	}
	return p.lists("")
}

// lists checks that a listing has "seen" in a version, and nothing else; "": nothing at all.
func (p *probe) lists(v bucket.Version) error {
	for _, b := range p.nodes {
		n := 0
		for info, err := range b.List(p.ctx, p.prefix, "") {
			switch {
			case err != nil:
				return answered("a listing", err)
			case info.Key != p.prefix+"seen" || v == "":
				return failed("a listing has %s, which is not there", info.Key)
			case info.Version != v || info.Size != 3:
				return failed("a listing has %d bytes with the ETag %q, and was put 3 with %q", info.Size,
					info.Version, v)
			}
			n++
		}
		if n == 0 && v != "" {
			return failed("a listing lacks what was put")
		}
	}
	return nil
}

func (p *probe) creates() error {
	if _, err := p.put("created", []byte("first"), bucket.Cond{Absent: true}); err != nil {
		return answered("If-None-Match: * on a missing key", err)
	}
	return p.createsOnlyOnce("created", []byte("first"))
}

// createsOnlyOnce tries to create an object that is there.
func (p *probe) createsOnlyOnce(key string, holds []byte) error {
	err := p.refuses("If-None-Match: * on a key that is there", key, bucket.Cond{Absent: true},
		bucket.ErrPrecondition)
	if err != nil {
		return err
	}
	return p.is(key, holds)
}

func (p *probe) swaps() error { return p.swapsAt("swapped") }

// swapsAt replaces an object, "two" in the end, and tries to do so with a version that it had before.
func (p *probe) swapsAt(key string) error {
	v, err := p.put(key, p.body("one"), bucket.Cond{})
	if err != nil {
		return err
	}
	w, err := p.put(key, p.body("two"), bucket.Cond{Version: v})
	switch {
	case err != nil:
		return answered("If-Match with the ETag that the object has", err)
	case v == w:
		return failed("two contents have the ETag %s", v)
	}
	err = p.refuses("If-Match with an ETag that the object had before", key, bucket.Cond{Version: v},
		bucket.ErrPrecondition)
	if err != nil {
		return err
	}
	return p.is(key, p.body("two"))
}

func (p *probe) swapsMissing() error {
	v, err := p.put("gone", []byte("one"), bucket.Cond{})
	if err != nil {
		return err
	}
	if err := p.b.Delete(p.ctx, []string{p.prefix + "gone"}); err != nil {
		return err
	}
	err = p.refuses("If-Match on a missing key", "gone", bucket.Cond{Version: v}, bucket.ErrPrecondition,
		bucket.ErrNotFound)
	if err != nil {
		return err
	}
	return p.is("gone", nil)
}

// together calls f for each connection, the endpoints in turn, and returns the first error.
func (p *probe) together(f func(i int, b bucket.Bucket) error) error {
	var wg sync.WaitGroup
	errs := make([]error, connections)
	for i := range connections {
		wg.Go(func() { errs[i] = f(i, p.nodes[i%len(p.nodes)]) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// tries is how often a conditional put is tried against others before an engine is said to let none
// through.
const tries = 10_000

// race puts with a condition until it is decided: done, or not, because another one was first.
func (p *probe) race(b bucket.Bucket, key string, data []byte, cond bucket.Cond) (done bool, err error) {
	for range tries {
		_, err := b.Put(p.ctx, p.prefix+key, bucket.Bytes(data), cond)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, bucket.ErrPrecondition):
			return false, nil
		case !errors.Is(err, bucket.ErrConflict):
			return false, err
		}
	}
	return false, failed("%s: %d conflicts, one after the other", key, tries)
}

func (p *probe) creators() error {
	n := rounds
	if p.Full {
		n = fullRounds
	}
	for round := range n {
		if err := p.create("race-" + strconv.Itoa(round)); err != nil {
			return err
		}
	}
	return nil
}

func (p *probe) create(key string) error {
	var mu sync.Mutex
	var won [][]byte
	err := p.together(func(i int, b bucket.Bucket) error {
		data := fmt.Appendf(nil, "%s, connection %d", key, i)
		done, err := p.race(b, key, data, bucket.Cond{Absent: true})
		if done {
			mu.Lock()
			defer mu.Unlock()
			won = append(won, data)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case len(won) != 1:
		return failed("of %d that created the same key at once, %d were told that they did", connections,
			len(won))
	}
	return p.is(key, won[0])
}

func (p *probe) counts() error {
	each := increments / connections
	if p.Full {
		each = fullCounts / connections
	}
	if _, err := p.put("counter", []byte("0"), bucket.Cond{}); err != nil {
		return err
	}
	err := p.together(func(_ int, b bucket.Bucket) error {
		for done, tried := 0, 0; done < each; tried++ {
			if tried == tries {
				return failed("of %d replacements, %d were refused", tries, tries-done)
			}
			up, err := p.increment(b)
			if err != nil {
				return err
			}
			if up {
				done++
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return p.is("counter", strconv.AppendInt(nil, int64(each*connections), 10))
}

func (p *probe) increment(b bucket.Bucket) (done bool, err error) {
	data, info, err := bucket.Read(p.ctx, b, p.prefix+"counter", 20, "")
	if err != nil {
		return false, err
	}
	n, err := strconv.Atoi(string(data))
	if err != nil {
		return false, failed("the counter is %q", data)
	}
	return p.race(b, "counter", strconv.AppendInt(nil, int64(n+1), 10), bucket.Cond{Version: info.Version})
}

func (p *probe) ranges() error {
	data := make([]byte, 100_000)
	rand.Read(data)
	if _, err := p.put("ranges", data, bucket.Cond{}); err != nil {
		return err
	}
	size := int64(len(data))
	for _, r := range []struct{ off, n, end int64 }{
		{0, 10, 10}, {4096, 50_000, 54_096}, {size - 10, bucket.All, size}, {size - 10, 1000, size},
	} {
		body, info, err := p.b.Get(p.ctx, p.prefix+"ranges", r.off, r.n, "")
		if err != nil {
			return answered(fmt.Sprintf("%d bytes from %d on", r.n, r.off), err)
		}
		got, err := io.ReadAll(body)
		body.Close()
		if err != nil || info.Size != size || !bytes.Equal(got, data[r.off:r.end]) {
			return failed("%d bytes from %d on of %d are %d others (%v)", r.n, r.off, size, len(got), err)
		}
	}
	_, _, err := p.b.Get(p.ctx, p.prefix+"ranges", size, 1, "")
	if !errors.Is(err, bucket.ErrRange) {
		return failed("a range behind the end is answered with: %v", err)
	}
	return nil
}

func (p *probe) unchanged() error {
	v, err := p.put("polled", []byte("one"), bucket.Cond{})
	if err != nil {
		return err
	}
	_, _, err = p.b.Get(p.ctx, p.prefix+"polled", 0, bucket.All, v)
	if !errors.Is(err, bucket.ErrUnchanged) {
		return failed("If-None-Match with the ETag that the object has is answered with: %v", err)
	}
	return nil
}

func (p *probe) damaged() error {
	body := bucket.Bytes([]byte("as it was"))
	body.CRC32C ^= 1
	_, err := p.b.Put(p.ctx, p.prefix+"damaged", body, bucket.Cond{})
	switch {
	case err == nil:
		p.told = "use TLS, and look now and then with check --remote --read-data"
		return failed("a body with another CRC-32C was stored")
	case errors.Is(err, bucket.ErrDamaged):
		return nil
	}
	return answered("a body with another CRC-32C", err)
}

// clockSlack is what clocks may differ without being told of.
const clockSlack = 5 * time.Second

func (p *probe) clock() error {
	if _, err := p.put("clock", []byte("tick"), bucket.Cond{}); err != nil {
		return err
	}
	_, info, err := p.b.Get(p.ctx, p.prefix+"clock", 0, 0, "")
	switch {
	case err != nil:
		return err
	case info.Date.IsZero():
		return failed("answers have no date: nothing can be collected")
	}
	switch d := info.Date.Sub(p.Now()); {
	case d > clockSlack:
		p.told = fmt.Sprintf("it is %v ahead of this machine's", d.Round(time.Second))
	case d < -clockSlack:
		p.told = fmt.Sprintf("it is %v behind this machine's", -d.Round(time.Second))
	}
	return nil
}

func (p *probe) large() error {
	data := make([]byte, large)
	rand.Read(data)
	if _, err := p.put("large", data, bucket.Cond{Absent: true}); err != nil {
		return answered("64 MiB", err)
	}
	got, _, err := bucket.Read(p.ctx, p.b, p.prefix+"large", large, "")
	switch {
	case err != nil:
		return err
	case !bytes.Equal(got, data):
		return failed("64 MiB are read back as others")
	}
	return nil
}

// pages puts more objects than a page of a listing has, lists and deletes them.
func (p *probe) pages() error {
	keys := make([]string, pageSize+1)
	for i := range keys {
		keys[i] = fmt.Sprintf("%spage/%04d", p.prefix, i)
	}
	err := p.together(func(i int, b bucket.Bucket) error {
		for j := i; j < len(keys); j += connections {
			if _, err := b.Put(p.ctx, keys[j], bucket.Bytes([]byte{1}), bucket.Cond{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var got []string
	for info, err := range p.b.List(p.ctx, p.prefix+"page/", "") {
		if err != nil {
			return answered("a listing", err)
		}
		got = append(got, info.Key)
	}
	if !slices.Equal(got, keys) {
		return failed("of %d objects, %d are listed, or others", len(keys), len(got))
	}
	if err := p.b.Delete(p.ctx, keys); err != nil {
		return answered("1,000 deletions in a request", err)
	}
	for info := range p.b.List(p.ctx, p.prefix+"page/", "") {
		return failed("%s is listed after it was deleted", info.Key)
	}
	return nil
}
