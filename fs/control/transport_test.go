package control

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// Who closes an answer early, and then the store, has nothing read from the store meanwhile.
func TestClosedEarly(t *testing.T) {
	var ended atomic.Bool
	c := http.Client{Transport: newTransport(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer ended.Store(true)
		for {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				<-r.Context().Done()
				return
			}
		}
	}))}
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

// Who closes the client, and then the store, has nothing going on in the store: neither answers that nobody
// reads, nor ones that have not begun.
func TestClientClosed(t *testing.T) {
	var running atomic.Int64
	begun := make(chan struct{}, 8)
	c := InProcess(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		running.Add(1)
		defer running.Add(-1)
		begun <- struct{}{}
		if r.URL.Path == "/writes" {
			for {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		}
		<-r.Context().Done()
	}))
	var asked sync.WaitGroup
	for _, to := range []string{"/writes", "/waits", "/writes", "/waits"} {
		asked.Go(func() {
			if r, err := c.http.Get("http://store" + to); err == nil {
				_ = r.Body // it is left open
			}
		})
	}
	for range 4 {
		<-begun
	}
	c.Close()
	if n := running.Load(); n != 0 {
		t.Errorf("%d handlers go on", n)
	}
	asked.Wait()
	if _, err := c.http.Get("http://store/waits"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("asked afterwards: %v", err)
	}
}
