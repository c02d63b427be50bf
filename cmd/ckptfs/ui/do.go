package ui

import (
	"context"
	"net/http"
	"strings"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

// doneBody is what an action did.
type doneBody struct {
	Message, Back string
	Skipped       []control.Skip
}

// do does what a form asks for. A form of a foreign page lacks the proof.
func (s *server) do(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 1<<16)
	if err := r.ParseForm(); err != nil {
		s.fail(w, r, control.Invalid("the form cannot be read: %v", err))
		return
	}
	if !s.write || !same(r.PostForm.Get("proof"), s.gate.forms) {
		s.fail(w, r, &control.Error{Code: control.CodeDenied, Errno: "EACCES",
			Message: "nothing can be changed from here", Do: "start `ckptfs ui --write`, and load the page again"})
		return
	}
	what, p := r.PostForm.Get("what"), r.PostForm.Get("path")
	b, err := s.act(r.Context(), what, p)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	b.Back = r.PostForm.Get("back")
	if !strings.HasPrefix(b.Back, "/") || strings.HasPrefix(b.Back, "//") {
		b.Back = "/"
	}
	s.render(w, r, http.StatusOK, &page{Name: "done", Title: "Done", Body: b})
}

func (s *server) act(ctx context.Context, what, p string) (*doneBody, error) {
	quiet := func(control.Progress) {}
	switch what {
	case "sync":
		if err := s.c.Sync(ctx, quiet); err != nil {
			return nil, err
		}
		return &doneBody{Message: "all closed files are packed"}, nil
	case "prune":
		d, err := s.c.Prune(ctx, control.PruneOptions{Grace: control.DefaultGrace, MaxUnused: 0.5}, quiet)
		if err != nil {
			return nil, err
		}
		m := "prune gave " + text.Bytes(d.FreedBytes) + " back to the disk"
		if d.YoungBytes > 0 {
			m += "; " + text.Bytes(d.YoungBytes) + " more are younger than a day"
		}
		return &doneBody{Message: m}, nil
	case "evict", "hydrate":
		move := s.c.Evict
		if what == "hydrate" {
			move = s.c.Hydrate
		}
		d, err := move(ctx, p, quiet)
		if err != nil {
			return nil, err
		}
		verb := map[string]string{"evict": "dropped", "hydrate": "restored"}[what]
		return &doneBody{Message: verb + " the local copies of " + text.Plural(int64(d.Files), "file") + ", " +
			text.Bytes(d.Bytes), Skipped: d.Skipped}, nil
	}
	return nil, control.Invalid("no such action: %s", shown(what))
}
