package tier

import (
	"context"
	"math"
	"slices"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"ckptfs/cas"
	"ckptfs/cas/remote/record"
)

// maxPlans bounds the memory for plans of files that are not pinned, in bytes.
const maxPlans = 64 << 20

// plans are those that are loaded, and the files that are pinned.
type plans struct {
	mu     sync.RWMutex
	pins   map[cas.Hash]*pin
	loaded *simplelru.LRU[cas.Hash, *plan] // loaded last, or unpinned last, is last
	all    []*plan                         // of loaded; never changed, but replaced
	weight int64                           // of those that are not pinned
}

// pin is a file that somebody may read at any time.
type pin struct {
	file *record.File
	n    int // by how many
}

func (s *plans) init() {
	s.pins = map[cas.Hash]*pin{}
	s.loaded, _ = simplelru.NewLRU[cas.Hash, *plan](math.MaxInt, nil) // bounded by weight
}

// find is a record of a plan that is loaded.
func (s *plans) find(h cas.Hash) (wanted, bool) {
	s.mu.RLock()
	all := s.all
	s.mu.RUnlock()
	return findIn(all, h)
}

func findIn(all []*plan, h cas.Hash) (wanted, bool) {
	k := keyOf(h)
	for i := len(all) - 1; i >= 0; i-- {
		if n, ok := all[i].find(k); ok {
			return wanted{all[i], n}, true
		}
	}
	return wanted{}, false
}

func (s *plans) get(manifest cas.Hash) (*plan, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.loaded.Peek(manifest)
}

// add adds a plan, and lets go of others that nobody has pinned.
func (s *plans) add(p *plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded.Contains(p.Manifest) {
		return
	}
	s.loaded.Add(p.Manifest, p)
	if s.pins[p.Manifest] == nil {
		s.weight += p.weight()
	}
	s.shrinkLocked()
}

func (s *plans) shrinkLocked() {
	for _, h := range s.loaded.Keys() {
		if s.weight <= maxPlans {
			break
		}
		if p, _ := s.loaded.Peek(h); s.pins[h] == nil {
			s.weight -= p.weight()
			s.loaded.Remove(h)
		}
	}
	s.all = slices.Clone(s.loaded.Values())
}

// pin pins a file.
func (s *plans) pin(f *record.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.pins[f.Manifest]; x != nil {
		x.n++
		return
	}
	s.pins[f.Manifest] = &pin{f, 1}
	if p, ok := s.loaded.Peek(f.Manifest); ok {
		s.weight -= p.weight()
		p.stream.resume()
	}
}

func (s *plans) unpin(manifest cas.Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.pins[manifest]
	if x.n--; x.n > 0 {
		return
	}
	delete(s.pins, manifest)
	if p, ok := s.loaded.Get(manifest); ok {
		s.weight += p.weight()
		p.stream.pause()
		s.shrinkLocked()
	}
}

// moved says where the plan of a file is now. One that was read elsewhere is forgotten: what it names may go.
func (s *plans) moved(f *record.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.pins[f.Manifest]
	if x != nil {
		x.file = f
	}
	p, ok := s.loaded.Peek(f.Manifest)
	if !ok || p.at == f.Plan {
		return
	}
	s.loaded.Remove(f.Manifest)
	if x == nil {
		s.weight -= p.weight()
	}
	p.stream.pause()
	s.shrinkLocked()
}

// pinned is the file of a manifest, if it is pinned.
func (s *plans) pinned(manifest cas.Hash) *record.File {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if x := s.pins[manifest]; x != nil {
		return x.file
	}
	return nil
}

// seek is find. If no plan that is loaded has it, unread are the files that are pinned and whose plans are
// not loaded at that moment.
func (s *plans) seek(h cas.Hash) (w wanted, ok bool, unread []*record.File) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if w, ok = findIn(s.all, h); ok {
		return w, true, nil
	}
	for h, x := range s.pins {
		if !s.loaded.Contains(h) {
			unread = append(unread, x.file)
		}
	}
	return wanted{}, false, unread
}

// Moved says that Find tells of another plan of these files now. Who reads one goes on by that.
func (t *Tier) Moved(files []*record.File) {
	for _, f := range files {
		t.plans.moved(f)
	}
}

// Pin has the records of a file be found until done, which is to be called once. It asks nobody over the
// network.
func (t *Tier) Pin(manifest cas.Hash) (done func(), err error) {
	f, err := t.file(manifest)
	if err != nil {
		return nil, err
	}
	t.plans.pin(f)
	return func() { t.plans.unpin(manifest) }, nil
}

// file is the file of a manifest; cas.ErrNotFound if none is pinned and the remote has none.
func (t *Tier) file(manifest cas.Hash) (*record.File, error) {
	if f := t.plans.pinned(manifest); f != nil {
		return f, nil
	}
	if t.reader == nil {
		return nil, &cas.ChunkError{Hash: manifest, Err: cas.ErrNotFound}
	}
	f, err := t.o.Find(manifest)
	if err == nil && f == nil {
		err = &cas.ChunkError{Hash: manifest, Err: cas.ErrNotFound}
	}
	return f, err
}

// Plan is where the records of a file lie. It must not be changed.
func (t *Tier) Plan(ctx context.Context, manifest cas.Hash) (*record.Plan, error) {
	p, err := t.planOf(ctx, manifest)
	if err != nil {
		return nil, err
	}
	return p.Plan, nil
}

// planOf is the plan of a file, which is loaded unless it was.
func (t *Tier) planOf(ctx context.Context, manifest cas.Hash) (*plan, error) {
	if p, ok := t.plans.get(manifest); ok {
		return p, nil
	}
	f, err := t.file(manifest)
	if err != nil {
		return nil, err
	}
	return t.loadOnce(ctx, f)
}

// loadOnce loads a plan, for all who want it. One who gives up leaves it to the others.
func (t *Tier) loadOnce(ctx context.Context, f *record.File) (*plan, error) {
	c := t.loads.DoChan(string(f.Manifest[:]), func() (any, error) {
		if !t.flights.begin() {
			return nil, context.Canceled
		}
		defer t.flights.under.Done()
		if p, ok := t.plans.get(f.Manifest); ok {
			return p, nil
		}
		p, err := t.load(t.ctx, f)
		if err != nil {
			return nil, err
		}
		if now, err := t.file(f.Manifest); err == nil && now.Plan == p.at { // else it moved meanwhile
			t.plans.add(p)
			// It may have moved before it was added, when Moved had nothing to forget.
			if now, err := t.file(f.Manifest); err == nil && now.Plan != p.at {
				t.plans.moved(now)
			}
		}
		return p, nil
	})
	select {
	case r := <-c:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*plan), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// where finds a record: errUnplanned if no plan has it. h may be a manifest whose plan is not loaded, or be
// of a pinned file that nobody has read yet.
func (t *Tier) where(ctx context.Context, h cas.Hash) (wanted, error) {
	if w, ok := t.plans.find(h); ok {
		return w, nil
	}
	f, err := t.o.Find(h)
	if err != nil {
		return wanted{}, err
	}
	if f == nil {
		f = t.plans.pinned(h)
	}
	if f != nil {
		p, err := t.loadOnce(ctx, f)
		return wanted{p, 0}, err
	}
	w, ok, unread := t.plans.seek(h) // another reader may have loaded its plan by now
	if ok {
		return w, nil
	}
	for _, f := range unread {
		p, err := t.loadOnce(ctx, f)
		if err != nil {
			return wanted{}, err
		}
		if n, ok := p.find(keyOf(h)); ok {
			return wanted{p, n}, nil
		}
	}
	return wanted{}, errUnplanned
}
