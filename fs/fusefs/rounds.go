package fusefs

import (
	"sync"
	"sync/atomic"
	"time"
)

// rounds tell when all requests have been answered that were in hand at some moment. A request enters the
// round of now and leaves that round when it is answered.
type rounds struct {
	now atomic.Uint32
	in  [2]atomic.Int64 // requests of rounds of even and of odd number

	settling sync.Mutex // one at a time
}

func (r *rounds) enter() (round uint32) {
	round = r.now.Load() & 1
	r.in[round].Add(1)
	return round
}

func (r *rounds) leave(round uint32) { r.in[round].Add(-1) }

// settle returns when the requests that had entered before have left.
func (r *rounds) settle() {
	r.settling.Lock()
	defer r.settling.Unlock()
	for range 2 { // a request may have looked at now and not entered yet
		old := (r.now.Add(1) - 1) & 1
		for pause := 100 * time.Microsecond; r.in[old].Load() > 0; pause = min(2*pause, 50*time.Millisecond) {
			time.Sleep(pause)
		}
	}
}

// event is something that happens once and can be waited for.
type event struct {
	mu   sync.Mutex
	did  atomic.Bool
	done chan struct{}
}

// Do says that it happened.
func (o *event) Do() {
	if !o.did.Load() && !o.did.Swap(true) {
		close(o.Done())
	}
}

// Done is closed when it happened.
func (o *event) Done() chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done == nil {
		o.done = make(chan struct{})
	}
	return o.done
}
