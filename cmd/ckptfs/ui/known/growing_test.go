package known

import (
	"context"
	"errors"
	"testing"
	"time"
)

// What is told of an answer is had before it is whole, the last one while the next is made, and an error by
// who waits for it.
func TestGrowing(t *testing.T) {
	now := time.Unix(1, 0)
	next, told := make(chan int), make(chan bool)
	g := Grow(t.Context(), func(_ context.Context, tell func(*int)) (*int, error) {
		for n := range next {
			switch {
			case n < 0:
				return nil, errors.New("it went")
			case n%10 == 0:
				return &n, nil
			}
			tell(&n)
			told <- true
		}
		return nil, errors.New("the end")
	})
	g.now = func() time.Time { return now }
	want := func(patience time.Duration, v int, whole bool) {
		t.Helper()
		got, is, err := g.Get(t.Context(), Fresh, patience)
		if err != nil || is != whole || (got == nil) != (v == 0) || got != nil && *got != v {
			t.Fatalf("%v, %v, %v", got, is, err)
		}
	}
	want(0, 0, false)
	for _, n := range []int{1, 2} {
		next <- n
		<-told
		want(0, n, false)
	}
	next <- 10
	want(time.Hour, 10, true)
	want(0, 10, true)
	now = now.Add(Fresh)
	want(0, 10, false)
	next <- 11
	<-told
	want(0, 10, false) // not the part: less is known of that
	next <- 20
	want(time.Hour, 20, true)
	now = now.Add(Fresh)
	want(0, 20, false)
	next <- -1
	for {
		v, whole, err := g.Get(t.Context(), Fresh, time.Hour)
		if err != nil {
			break
		}
		if whole {
			t.Fatal(v)
		}
	}
	close(next)
}
