package writer

import (
	"maps"
	"slices"
	"sync"

	"ckptfs/cas"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
)

// Mem is a State in memory, for tests and for what is to rely on nothing. The zero value is empty and ready
// for use.
type Mem struct {
	mu        sync.Mutex
	id        Identity
	places    map[cas.Hash]objects.Place
	epoch     uint32
	condemned map[record.ID]bool
}

// Clone is a copy, as of a disk.
func (m *Mem) Clone() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &Mem{id: m.id, places: maps.Clone(m.places), epoch: m.epoch, condemned: maps.Clone(m.condemned)}
	c.id.Pending = slices.Clone(c.id.Pending)
	return c
}

// Identity is State's.
func (m *Mem) Identity() (Identity, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id, nil
}

// SetIdentity is State's.
func (m *Mem) SetIdentity(id Identity) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.id = id
	return nil
}

// Find is State's.
func (m *Mem) Find(hashes []cas.Hash, places []objects.Place) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, h := range hashes {
		places[i] = m.places[h]
	}
	return nil
}

// Learn is State's.
func (m *Mem) Learn(o record.Object, records []objects.Placed) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.places == nil {
		m.places = map[cas.Hash]objects.Place{}
	}
	for _, r := range records {
		m.places[r.Hash] = objects.Place{Object: o, Placed: r}
	}
	return nil
}

// Forget is State's.
func (m *Mem) Forget() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.places = nil
	return nil
}

// Epoch is State's.
func (m *Mem) Epoch() (uint32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.epoch, nil
}

// Condemn is State's.
func (m *Mem) Condemn(epoch uint32, ids []record.ID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch = epoch
	if m.condemned == nil {
		m.condemned = map[record.ID]bool{}
	}
	for _, id := range ids {
		m.condemned[id] = true
	}
	return nil
}

// Condemned is State's.
func (m *Mem) Condemned(ids []record.ID, gone []bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, id := range ids {
		gone[i] = m.condemned[id]
	}
	return nil
}
