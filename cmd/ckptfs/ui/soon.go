package ui

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// promised are pages that somebody waits for, by their URLs: they took longer to make than a person waits
// without being told. A daemon that just started, for example, looks at all runs first.
type promised struct {
	mu  sync.Mutex
	all map[string]*promise
}

// promise is a page that is being made.
type promise struct {
	begun time.Time
	done  chan struct{}
	p     *page
	err   error
}

const (
	// soonEnough is how long nothing is said, and goOn how long a page is made that nobody asks for any more.
	soonEnough, goOn = 80 * time.Millisecond, 5 * time.Minute
	// mostPromised bounds the pages that are being made.
	mostPromised = 64
)

// soon is a page, or one that says that it takes longer, and asks again. Only a browser is told so: programs
// wait for the page. Parts tell themselves how far they are.
func (s *server) soon(r *http.Request, of answer) (*page, error) {
	browser := strings.Contains(r.Header.Get("Accept"), "text/html") || r.Header.Get("Ckptfs-Part") == "main"
	if !browser || r.URL.Query().Get("json") == "1" || strings.HasPrefix(r.URL.Path, "/part/") {
		return patiently(r.Context(), r, of)
	}
	at := r.URL.RequestURI()
	s.promised.mu.Lock()
	now := s.promised.all[at]
	if now == nil && len(s.promised.all) >= mostPromised {
		s.promised.mu.Unlock()
		return patiently(r.Context(), r, of)
	}
	if now == nil {
		now = &promise{begun: time.Now(), done: make(chan struct{})}
		s.promised.all[at] = now
		ctx, cancel := context.WithTimeout(s.life, goOn)
		go func() {
			defer cancel()
			now.p, now.err = patiently(ctx, r.Clone(ctx), of)
			close(now.done)
			time.AfterFunc(10*time.Second, func() { s.promised.drop(at, now) }) // nobody fetched it
		}()
	}
	s.promised.mu.Unlock()
	timer := time.NewTimer(soonEnough)
	defer timer.Stop()
	select {
	case <-now.done:
		s.promised.drop(at, now)
		if now.err != nil {
			return nil, now.err
		}
		p := *now.p // another tab may get it, too
		return &p, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-timer.C:
	}
	here, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch here {
	case "":
		here = "store"
	case "run", "compare":
		here = "runs"
	case "path", "tensor", "diff":
		here = "files"
	}
	says := "Looking at the store."
	if n := time.Since(now.begun); n > 2*time.Second {
		says = fmt.Sprintf("Looking at the store, since %d seconds. After a start the daemon looks at all runs.",
			int(n.Seconds()))
	}
	return &page{Name: "soon", Title: "Looking", Here: here, Body: says, Refresh: 1}, nil
}

// drop forgets a page that was made.
func (p *promised) drop(at string, of *promise) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all[at] == of {
		delete(p.all, at)
	}
}
