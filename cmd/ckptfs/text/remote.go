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
	s := Printable(r.URL)
	if r.ReadOnly {
		s += ", only read"
	} else {
		s += " as " + Printable(r.Writer)
	}
	if !r.LastCommit.IsZero() {
		s += ", published last " + r.LastCommit.Format(time.DateTime)
	}
	if r.Pushing != "" {
		s += ", publishing " + Printable(r.Pushing)
	}
	if r.Manual {
		s += ", published when a command says so"
	}
	s += waits(r)
	if n := r.Conflicts; n != nil && *n > 0 {
		s += fmt.Sprintf(", %s: see .ckptfs/conflicts", Plural(int64(*n), "name")+" with several versions")
	}
	if r.Problem != "" {
		s += "; nothing is published: " + Printable(r.Problem)
	}
	if o := r.Offline; o != nil {
		s += fmt.Sprintf("; offline since %s, names are as they were seen last: %s; %s",
			o.Since.Format(time.DateTime), Printable(o.Why), o.Do)
	}
	return s
}

// waits says what is not published, and why the first of it is not; "" if that is nothing.
func waits(r *control.RemoteStatus) string {
	s := ", "
	if u := r.Unpublished; u != nil && *u != (control.Unpublished{}) {
		s += amount(u) + " "
	} else if len(r.Waiting) == 0 {
		return ""
	}
	s += "not published"
	if len(r.Waiting) > 0 {
		s += fmt.Sprintf(": %s (%s)", Printable(r.Waiting[0].Path), Printable(r.Waiting[0].Reason))
		if more := len(r.Waiting) - 1 + r.MoreWaiting; more > 0 {
			s += ", and " + Plural(int64(more), "name") + " more"
		}
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
	removals := Plural(int64(u.Removed), "removal")
	if u.Files == 0 {
		return removals
	}
	s := fmt.Sprintf("%s of %s", Plural(int64(u.Files), "file"), Bytes(u.Bytes))
	if u.Removed > 0 {
		s += " and " + removals
	}
	return s
}
