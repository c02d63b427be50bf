package tier

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/remotetest"
	"ckptfs/cas/segment"
)

// forge changes the record at a place of an object, whose checksums fit again.
func forge(t *testing.T, object []byte, at fetch.Record,
	change func(r *segment.Record, payload []byte)) []byte {
	t.Helper()
	id := segment.ID{Store: at.Object.ID, Number: 1}
	p := slices.Clone(object[at.Off:][:at.Len()])
	rec, err := segment.ParseRecord(p, id, at.Off)
	if err != nil {
		t.Fatal(err)
	}
	payload := p[segment.RecordHeaderSize:]
	change(&rec, payload)
	rec.CRC = bucket.Bytes(payload).CRC32C
	object = slices.Clone(object)
	copy(object[at.Off:], segment.AppendRecord(nil, id, &rec, payload)[:at.Len()])
	return object
}

// A record whose checksums are right and whose content is not what its hash names, or that is another one, is
// never read, be it what was asked for or what that is stored against.
func TestForged(t *testing.T) {
	r := newRig(t)
	f := r.publish(t, remotetest.Small, 8)
	r.open(t, 1<<30)
	r.reads(t, f)
	p, _ := r.Tier.plans.get(f.Manifest)
	rnd := rand.New(rand.NewPCG(7, 8))
	last := len(p.keys) - 1
	numbers := []int{p.firstChunk(), p.firstChunk() + 7, p.firstBase() - 1, last, last - 1}
	some := 20
	if testing.Short() {
		some = 3
	}
	for range some {
		numbers = append(numbers, p.firstChunk()+rnd.IntN(len(p.keys)-p.firstChunk()))
	}
	for _, n := range numbers {
		at := wanted{p, n}.record()
		key := at.Object.Class.Key(at.Object.ID)
		honest, _, err := bucket.Read(t.Context(), r.remote.Bucket, key, record.MaxObject, "")
		if err != nil {
			t.Fatal(err)
		}
		for name, change := range map[string]func(*segment.Record, []byte){
			"content": func(_ *segment.Record, q []byte) { q[max(len(q)/2, segment.BaseSize)] ^= 4 },
			"hash":    func(rec *segment.Record, _ []byte) { rec.Hash[31] ^= 1 },
			"content and XXH3": func(rec *segment.Record, q []byte) {
				q[len(q)-1] ^= 1
				rec.XXH3[0] ^= 1
			},
		} {
			forged := forge(t, honest, at, change)
			for _, everywhere := range []bool{true, false} {
				r.cache.Free(1 << 40)
				r.remote.set(func(c *counting) { c.past = r.remote.Bucket })
				if everywhere {
					r.remote.set(func(c *counting) { c.past = nil })
				}
				instead := func(k string, off int64, q []byte) []byte {
					if k == key {
						copy(q, forged[off:])
					}
					return q
				}
				r.remote.set(func(c *counting) { c.change = instead })
				got, err := r.fresh().read(f, 4000)
				if !bytes.Equal(got, f.Content[:len(got)]) {
					t.Fatalf("record %d, %s: wrong bytes", n, name)
				}
				var where *fetch.Error
				// A patch need not use the byte of its base that was changed.
				unused := n >= p.firstBase() && p.Bases[n-p.firstBase()].Kind != cas.Chunk && err == nil
				named := errors.Is(err, cas.ErrCorrupt) && errors.As(err, &where) && where.Key == key &&
					where.Off == at.Off
				if everywhere && !unused && !named {
					t.Errorf("record %d, %s: %v, want %s at %d", n, name, err, key, at.Off)
				}
				if !everywhere && err != nil {
					t.Errorf("record %d, %s: %v", n, name, err)
				}
			}
		}
	}
}
