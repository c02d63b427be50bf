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
	unescape(r.PostForm)
	if err := s.allowed(r); err != nil {
		s.fail(w, r, err)
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

// allowed is why nothing is changed, or nil.
func (s *server) allowed(r *http.Request) error {
	denied := func(message, do string) error {
		return &control.Error{Code: control.CodeDenied, Errno: "EACCES", Message: message, Do: do}
	}
	proof := r.PostForm.Get("proof")
	switch {
	case !s.write:
		return denied("these pages change nothing: they were started without --write",
			"start `ckptfs ui --write`, and load the page again")
	case proof == "":
		return denied("the form lacks the proof that it comes from one of these pages",
			"press the button on the page, and let your program send its field named proof")
	case !same(proof, s.gate.forms):
		return denied("the form comes from another page, or from before `ckptfs ui` was started again",
			"load the page again, and press the button there")
	}
	return refuse(r.PostForm)
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
