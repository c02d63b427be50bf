package handover

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// flightSlot is a flight in the memory, alone in its cache line.
type flightSlot struct {
	unique atomic.Uint64
	_      [56]byte
}

// Flights are the requests that are worked on. A goroutine that serves takes one, and says with it which
// request it has. All methods are safe for concurrent use.
type Flights struct {
	mu    sync.Mutex
	h     *header
	both  []flightSlot // both tables
	stock stock        // of the table in use
	slots []flightSlot // the table in use
	left  []uint64
}

func (f *Flights) open(h *header, both []flightSlot) {
	f.h, f.both = h, both
	f.use(h.life.Load())
}

// use turns to the table of a life.
func (f *Flights) use(life uint64) {
	n := len(f.both) / 2
	f.slots = f.both[int(life&1)*n:][:n]
	f.stock = stock{used: &f.h.flightsUsed[life&1], size: uint64(n)}
}

// load finds what was under way when the last life ended.
func (f *Flights) load() error {
	f.left = nil
	for i := range f.h.flightsUsed {
		if n := f.h.flightsUsed[i].Load(); n > f.stock.size {
			return fmt.Errorf("%d flights used of %d: %w", n, f.stock.size, ErrDamaged)
		}
	}
	err := f.stock.load("flights", func(i uint32) (bool, error) {
		u := f.slots[i].unique.Load()
		if u != 0 {
			f.left = append(f.left, u)
		}
		return u == 0, nil
	})
	slices.Sort(f.left)
	f.left = slices.Compact(f.left)
	return err
}

// prepare clears the table of a life that is about to begin, and turns to it.
func (f *Flights) prepare(life uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.use(life)
	for i := range f.slots[:f.stock.used.Load()] {
		f.slots[i].unique.Store(0)
	}
	f.stock.used.Store(0)
}

// Take returns a flight for the caller alone, nil if all are taken.
func (f *Flights) Take() *Flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, ok := f.stock.take()
	if !ok {
		return nil
	}
	return &Flight{flights: f, slot: &f.slots[i], number: i}
}

// Left are the uniques of the requests that were under way when the last life ended, by ascending number.
func (f *Flights) Left() []uint64 { return slices.Clone(f.left) }

// Flight is what one goroutine is at. The methods of a nil *Flight do nothing.
type Flight struct {
	flights *Flights
	slot    *flightSlot
	number  uint32
}

// Begin says that a request is worked on. unique is without the bit that says that it comes again, and is not
// 0.
func (f *Flight) Begin(unique uint64) {
	if f != nil {
		f.slot.unique.Store(unique)
	}
}

// End says that the answer was written.
func (f *Flight) End() {
	if f != nil {
		f.slot.unique.Store(0)
	}
}

// Release gives the flight back. It may not be used any more.
func (f *Flight) Release() {
	if f == nil {
		return
	}
	f.slot.unique.Store(0)
	f.flights.mu.Lock()
	defer f.flights.mu.Unlock()
	f.flights.stock.give(f.number)
}
