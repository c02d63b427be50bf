package pack

import (
	"hash/maphash"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"ckptfs/cas/locks"
	"ckptfs/formats"
)

// Trials remember of short tensors, which are one chunk each and so have no others that could tell, whether
// what was tried for them has paid in the steps of their series so far.
type Trials struct {
	of *lru.Cache[uint64, *trial]
	// turns are how often, in a series, something began to pay that had not, by a hash of the series. Two of
	// one hash cost each other tries.
	turns [256]atomic.Uint32
}

const (
	// shortTensor is the length of a tensor, in bytes, up to which to try costs more than its bytes do.
	shortTensor = 16 << 10
	maxTrials   = 1 << 14 // tensors that are remembered, in some 3 MB
)

// NewTrials makes Trials that remember nothing.
func NewTrials() *Trials {
	of, _ := lru.New[uint64, *trial](maxTrials) // the size is positive
	return &Trials{of: of}
}

// chancesOf are those of a region of a file of a series, whose first tensor is t, or which has none: what its
// own chunks tell, or, where they are too few, those of the steps before.
func (t *Trials) chancesOf(series string, r *formats.Region, tensor *formats.Tensor) chances {
	if series == "" || r.Len > shortTensor {
		return &odds{}
	}
	var h maphash.Hash
	h.SetSeed(seed)
	h.WriteString(series)
	turn := &t.turns[h.Sum64()%uint64(len(t.turns))]
	h.WriteByte(0)
	if tensor != nil {
		h.WriteString(tensor.Name)
	}
	key := h.Sum64()
	if x, ok := t.of.Get(key); ok {
		return x
	}
	x := &trial{key: key, turn: turn, seen: turn.Load()}
	if had, ok, _ := t.of.PeekOrAdd(key, x); ok {
		return had
	}
	return x
}

// chances tell whether to try, and are told whether that paid.
type chances interface {
	good() bool
	tell(paid bool)
}

// trial is the chances of a short tensor throughout a series. Once it has not paid several times in a row,
// steps are passed over, up to twice as many each time. What makes one pay again, such as a step of the
// learning rate, does so for all of the series. So they do not all pause alike, and the first that pays ends
// the others' pauses.
type trial struct {
	key  uint64
	turn *atomic.Uint32 // of the series

	mu     locks.Mutex[trialLock]
	missed int    // in a row
	pass   int    // steps that are passed over still
	seen   uint32 // turn as of the last look
}

// trialLock is a leaf.
type trialLock struct{}

func (trialLock) Rank() (int, string) { return locks.Volume + 950, "pack.trial.mu" }

const (
	patience = 4  // times in a row that did not pay, from which on steps are passed over
	maxPass  = 32 // steps that are at most
)

func (t *trial) good() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if turn := t.turn.Load(); turn != t.seen {
		t.seen, t.pass = turn, 0
	}
	if t.pass > 0 {
		t.pass--
		return false
	}
	return true
}

func (t *trial) tell(paid bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if paid {
		if t.missed >= patience {
			t.seen = t.turn.Add(1)
		}
		t.missed, t.pass = 0, 0
		return
	}
	if t.missed++; t.missed >= patience {
		t.pass = min(1<<min(t.missed-patience, 30), maxPass)
		t.pass -= int(t.key % uint64(t.pass/2+1))
	}
}
