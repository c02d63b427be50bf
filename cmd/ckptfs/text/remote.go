package text

import (
	"fmt"
	"time"

	"ckptfs/fs/control"
)

// Remote says in a line how far a store and its remote are; "" without one.
func Remote(r *control.RemoteStatus) string {
	if r == nil {
		return ""
	}
	s := fmt.Sprintf("%s as %s", Printable(r.URL), Printable(r.Writer))
	if !r.LastCommit.IsZero() {
		s += ", published last " + r.LastCommit.Format(time.DateTime)
	}
	if r.Pushing != "" {
		s += ", publishing " + Printable(r.Pushing)
	}
	if r.Manual {
		s += ", published when a command says so"
	}
	if u := r.Unpublished; u != nil && *u != (control.Unpublished{}) {
		s += ", " + amount(u) + " not published"
	}
	if n := len(r.Waiting); n > 0 {
		s += fmt.Sprintf(", %s not published yet: %s (%s)", Plural(int64(n+r.MoreWaiting), "name"), Printable(r.Waiting[0].Path),
			Printable(r.Waiting[0].Reason))
	}
	if r.Problem != "" {
		s += "; nothing is published: " + Printable(r.Problem)
	}
	return s
}

// Unpublished says what a mount leaves to the next one; "" if that is nothing.
func Unpublished(r *control.RemoteStatus) string {
	switch {
	case r == nil || r.Unpublished != nil && *r.Unpublished == (control.Unpublished{}):
		return ""
	case r.Unpublished == nil:
		return "what is not published yet is published by the next mount"
	case r.Manual:
		return amount(r.Unpublished) + " not published"
	}
	return amount(r.Unpublished) + " not published: the next mount publishes it"
}

func amount(u *control.Unpublished) string {
	s := fmt.Sprintf("%s of %s", Plural(int64(u.Files), "file"), Bytes(u.Bytes))
	if u.Removed > 0 {
		s += " and " + Plural(int64(u.Removed), "removal")
	}
	return s
}
