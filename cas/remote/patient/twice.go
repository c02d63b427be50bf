package patient

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"ckptfs/cas/remote/bucket"
)

const (
	// slowFactor is how many times as long as 95 of 100 answers take a Get waits before it is made a second
	// time, beside the first, and leastSlow is how long at least.
	slowFactor = 3
	leastSlow  = 100 * time.Millisecond
	// times is of how many answers it is known how long they took; fewer than fewTimes say nothing.
	times, fewTimes = 128, 20
)

var errSilent = fmt.Errorf("no answer within %s", Prompt)

// answers are how long the last ones took, from the request to their first byte.
type answers struct {
	mu   sync.Mutex
	took []time.Duration
	next int // of took, once that is full
	slow time.Duration
}

func (a *answers) add(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.took) < times {
		a.took = append(a.took, d)
	} else {
		a.took[a.next] = d
		a.next = (a.next + 1) % times
	}
	if n := len(a.took); n >= fewTimes && a.next%8 == 0 {
		sorted := slices.Sorted(slices.Values(a.took))
		a.slow = max(slowFactor*sorted[n*95/100], leastSlow)
	}
}

// slowAfter is when an answer is slow; 0: nobody knows.
func (a *answers) slowAfter() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.slow
}

// attempt is one of up to two requests for the same bytes.
type attempt struct {
	io.ReadCloser
	info bucket.Info
	err  error
	stop context.CancelFunc
}

// Close ends the request.
func (a *attempt) Close() error {
	defer a.stop()
	return a.ReadCloser.Close()
}

// drop ends a request of which nothing is wanted.
func (a *attempt) drop() {
	if a.err == nil {
		a.ReadCloser.Close()
	}
	a.stop()
}

// get makes a request, and once more if it is slow. Whichever is answered first is taken.
func (b *Bucket) get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	came := make(chan *attempt, 2)
	var stops []context.CancelFunc
	ask := func(done func(error)) {
		one, stop := context.WithCancel(ctx)
		stops = append(stops, stop)
		go func() {
			begun := time.Now()
			r, info, err := b.b.Get(one, key, off, n, unless)
			if err == nil {
				b.answers.add(time.Since(begun))
			}
			done(err)
			came <- &attempt{r, info, err, stop}
		}()
	}
	ask(func(error) {})
	under := 1
	var slow, late <-chan time.Time // a timer that nobody waits for needs no Stop
	if d := b.answers.slowAfter(); d > 0 {
		slow = time.After(d)
	}
	if isPrompt(ctx) {
		late = time.After(Prompt)
	}
	for {
		select {
		case a := <-came:
			under--
			if under > 0 && a.err != nil && passes(a.err) {
				a.drop()
				continue
			}
			if under > 0 {
				go func() { (<-came).drop() }()
			}
			if a.err != nil {
				a.drop()
				return nil, a.info, a.err
			}
			return a, a.info, nil
		case <-late:
			for _, stop := range stops {
				stop()
			}
			for range under {
				go func() { (<-came).drop() }()
			}
			return nil, bucket.Info{}, &bucket.Error{Op: "get", Key: key, Kind: bucket.ErrUnreachable,
				Err: errSilent}
		case <-slow:
			if done, ok := b.limit.try(); ok {
				ask(done)
				under++
			}
		}
	}
}
