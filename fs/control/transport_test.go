package control

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
)

// Who closes an answer early, and then the store, has nothing read from the store meanwhile.
func TestClosedEarly(t *testing.T) {
	var ended atomic.Bool
	c := http.Client{Transport: transport{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer ended.Store(true)
		for {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				<-r.Context().Done()
				return
			}
		}
	})}}
	for range 100 {
		ended.Store(false)
		r, err := c.Get("http://store/")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r.Body, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		if err := r.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if !ended.Load() {
			t.Fatal("the handler goes on")
		}
	}
}
