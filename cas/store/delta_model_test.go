package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/damage"
	"ckptfs/cas/delta"
	"ckptfs/cas/segment"
)

// Puts, names that go, sweeps, starts with and without the index: what has a name can be read.
func TestDeltaModel(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	lines := []int{0, 1, 2, halves, adapted, columned, computed}
	const most = 4 // three as they are written, and one more where a compaction had a key become a delta
	var recoded, lowRanks, recodedLow, recipes int64
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 3))
		m, x := newMem(), newIndex()
		var minutes atomic.Int64
		now := func() time.Time { return time.Unix(1_700_000_000+60*minutes.Load(), 0) }
		opt := Options{SegmentSize: 1 << (10 + r.IntN(4)), Now: now}
		s := open(t, m, x, opt)
		named := map[[2]int]bool{}
		held := map[*Batch][][2]int{}
		var log []string
		for range 120 {
			minutes.Add(r.Int64N(100))
			what := ""
			switch k := r.IntN(20); {
			case k < 9: // a save
				b := s.Begin()
				var ids [][2]int
				for range 1 + r.IntN(4) {
					id := [2]int{lines[r.IntN(7)], r.IntN(12)}
					if id[0] == computed && r.IntN(2) == 0 {
						putBases(t, b, id[1])
					}
					if r.IntN(2) == 0 || !heldOf(t, b, cas.Chunk, version(id[0], id[1]))[0] {
						prev := id[1] - 1 - r.IntN(2)*r.IntN(4)
						if _, codecID, err := putAs(b, id[0], id[1], prev, r.IntN(4)); err != nil {
							t.Fatalf("seed %d: %v", seed, err)
						} else if codecID == codec.LowRank {
							lowRanks++
						} else if codecID == codec.Recipe {
							recipes++
						}
					}
					ids = append(ids, id)
				}
				what = fmt.Sprint("save ", ids)
				if r.IntN(4) == 0 {
					held[b] = ids
					what += " later"
					break
				}
				if r.IntN(5) == 0 {
					what += " released"
					b.Release()
					break
				}
				commit(t, b)
				for _, id := range ids {
					named[id] = true
				}
			case k < 11: // the end of an earlier one
				for b, ids := range held {
					commit(t, b)
					for _, id := range ids {
						named[id] = true
					}
					delete(held, b)
					what = fmt.Sprint("end ", ids)
					break
				}
			case k < 15:
				for id := range named {
					if r.IntN(3) == 0 {
						delete(named, id)
						what += fmt.Sprint(" rm ", id)
					}
				}
			case k < 18:
				o := SweepOptions{MaxUnused: float64(r.IntN(3)) / 2,
					Grace: time.Duration(r.IntN(3)) * time.Hour}
				ctx, cancel := context.WithCancel(t.Context())
				cut := r.IntN(6) - 2
				o.Progress = func(SweepStats) {
					if cut--; cut == -1 {
						cancel()
					}
				}
				_, err := s.Sweep(ctx, o, keeping(named))
				cancel()
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Fatalf("seed %d: %v", seed, err)
				}
				what = fmt.Sprintf("sweep %+v %v", o, err)
			case k < 19:
				var ids [][2]int
				for range 1 + r.IntN(12) {
					ids = append(ids, [2]int{lines[r.IntN(7)], r.IntN(12)})
				}
				before := lowRanksOf(t, s)
				back := 1 + r.IntN(3)
				ctx, cancel := context.WithCancel(t.Context())
				if r.IntN(3) == 0 {
					x.before = func(string) { cancel() } // nothing is retired, as a rule
				}
				st, err := recodeAs(ctx, s, ids, r.IntN(4),
					func(v int) int { return v - back }, func(h cas.Hash) bool { return h[0]&1 != 0 })
				x.before = nil
				cancel()
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Fatalf("seed %d: %v", seed, err)
				}
				recoded += st.Records
				recodedLow += max(0, lowRanksOf(t, s)-before)
				what = fmt.Sprintf("compact %v by %d: %+v %v", ids, back, st, err)
			default:
				for b := range held {
					b.Release()
				}
				clear(held)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if what = "start"; r.IntN(2) == 0 {
					x, what = newIndex(), "start without index"
				}
				s = open(t, m, x, opt)
			}
			log = append(log, what)
			for id := range named {
				raw := version(id[0], id[1])
				if got, err := s.Get(cas.Sum(raw), nil); err != nil || !bytes.Equal(got, raw) {
					t.Fatalf("seed %d: %v: %v\n%s", seed, id, err, strings.Join(log, "\n"))
				}
				loc, err := s.locateNow(false, cas.Sum(raw))
				if err != nil {
					t.Fatal(err)
				}
				if n := stepsOf(t, s, cas.Sum(raw)); n > most {
					t.Fatalf("seed %d: %v leads back by %d steps\n%s", seed, id, n, strings.Join(log, "\n"))
				}
				if id[0] != computed {
					continue
				}
				if len(s.reader.leads(cas.Sum(raw), loc)) > delta.MostLed {
					t.Fatalf("seed %d: %v leads back to more\n%s", seed, id, strings.Join(log, "\n"))
				}
			}
		}
		if _, err := s.Check(t.Context(), CheckOptions{ReadData: true, Found: func(f damage.Finding) {
			if !f.Problem.Harmless() {
				t.Errorf("seed %d: %s", seed, f)
			}
		}}); err != nil {
			t.Fatal(err)
		}
		for b := range held {
			b.Release()
		}
		sweepNow(t, s, SweepOptions{}, marking())
		sweepNow(t, s, SweepOptions{}, marking())
		if len(x.m)+len(s.pins.count)+len(s.pins.needs) > 0 {
			t.Errorf("seed %d: %d records, %d pins left", seed, len(x.m), len(s.pins.count))
		}
		s.Close()
	}
	if recoded == 0 || lowRanks == 0 || recodedLow == 0 || recipes == 0 {
		t.Errorf("%d records were stored again; of low rank were %d, and became %d; recipes were %d", recoded,
			lowRanks, recodedLow, recipes)
	}
}

// putAs is putVersion of a version of another one, of what is like it, or of what leads versions.
func putAs(b *Batch, line, v, prev, as int) (fresh bool, id byte, err error) {
	raw := version(line, v)
	hint, rel := relatedTo(line, v, prev)
	rel.Alike, rel.Leads = as > 1, as > 2
	return b.PutRelated(cas.Chunk, cas.Sum(raw), raw, hint, rel)
}

// stepsOf is how many deltas lie between h and what is stored alone, at most.
func stepsOf(t *testing.T, s *Store, h cas.Hash) (most int) {
	t.Helper()
	b := numberOf(t, s, h)
	if b.Number > segment.MaxNumber || b.Number == 0 {
		return 0
	}
	return 1 + stepsOf(t, s, b.Hash)
}

// lowRanksOf counts what of the line adapted is stored with the help of columns.
func lowRanksOf(t *testing.T, s *Store) (n int64) {
	t.Helper()
	for v := range 12 {
		h := cas.Sum(version(adapted, v))
		if loc, err := s.locateNow(false, h); err != nil {
			t.Fatal(err)
		} else if b, _, err := s.reader.baseOf(h, loc); err == nil && b.Number > 0 && !b.Second.IsZero() {
			n++
		}
	}
	return n
}
