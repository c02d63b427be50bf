package sweep_test

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"

	"ckptfs/cas/remote/bucket"
)

// digest stands for what happened, in one order.
type digest uint64

var seed = maphash.MakeSeed()

func (d digest) add(x digest) digest   { return digest(maphash.Comparable(seed, [2]digest{d, x})) }
func (d digest) text(s string) digest  { return d.add(digest(maphash.String(seed, s))) }
func (d digest) bytes(p []byte) digest { return d.add(digest(maphash.Bytes(seed, p))) }

// past is what became of each key, one change after the other. Versions count the changes of a whole bucket,
// so that they differ where two things happened in another order that have nothing to do with each other.
type past struct {
	keys     map[string]digest
	versions map[bucket.Version]digest
}

// begin begins with what there is, which is the same each time.
func (h *past) begin(mem *bucket.Mem) {
	h.keys, h.versions = map[string]digest{}, map[bucket.Version]digest{}
	for info := range mem.List(context.Background(), "", "") {
		d := digest(0).text(info.Key).text(string(info.Version))
		h.keys[info.Key], h.versions[info.Version] = d, d
	}
}

func (h *past) put(key string, v bucket.Version, p []byte) {
	h.keys[key] = h.keys[key].text(key).bytes(p)
	h.versions[v] = h.keys[key]
}

func (h *past) deleted(keys []string) {
	for _, k := range keys {
		h.keys[k] = h.keys[k].text("deleted")
	}
}

func (h *past) of(v bucket.Version) digest { return h.versions[v] }

// state stands for all that decides what can happen from here on: what the bucket holds, what processes were
// answered, and what is under way. Of a process that has ended nothing is left but what it said, and of one
// that was ended what its disk has, too.
func (s *scene) state() digest {
	var d digest
	for key, change := range s.past.keys {
		d ^= digest(0).text(key).add(change)
	}
	for _, p := range s.processes {
		switch {
		case p.dead:
			d = d.text("ended").add(s.disk(p.name))
		case p.waiting != nil || p.err != nil:
			d = d.add(p.history)
		default:
			d = d.text(s.saidBy(p.name))
		}
	}
	if s.processes[s.current].waiting != nil {
		d = d.add(digest(s.current))
	}
	var late []digest
	for _, r := range s.late {
		late = append(late, r.sent)
	}
	slices.Sort(late)
	for _, r := range late {
		d = d.add(r)
	}
	return d
}

// disk is what is left of a process that was ended.
func (s *scene) disk(name string) digest {
	for id, m := range s.machines {
		if string(id[:3]) == name {
			return digest(0).text(fmt.Sprint(m.state, m.random)).text(s.saidBy(name))
		}
	}
	return 0
}

// saidBy is what a process wants to be seen.
func (s *scene) saidBy(name string) string {
	var b strings.Builder
	for _, x := range s.said {
		if string(x.by[:3]) == name {
			fmt.Fprint(&b, x.entry.Path, x.entry.Kind, content(&x.entry), x.entry.Over, x.acked)
		}
	}
	return b.String()
}

// memory is which states were explored, and with how many deviations left.
type memory struct {
	mu   sync.Mutex
	left map[digest]int8
}

// has reports whether a state was explored with so many deviations left, or more; else it is from here on.
func (m *memory) has(d digest, left int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == nil {
		m.left = map[digest]int8{}
	}
	before, seen := m.left[d]
	if seen && int(before) >= left {
		return true
	}
	m.left[d] = int8(left)
	return false
}
