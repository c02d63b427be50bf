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
	if n := len(r.Waiting); n > 0 {
		s += fmt.Sprintf(", %s not published yet: %s (%s)", Plural(int64(n+r.MoreWaiting), "name"), Printable(r.Waiting[0].Path),
			Printable(r.Waiting[0].Reason))
	}
	if r.Problem != "" {
		s += "; nothing is published: " + Printable(r.Problem)
	}
	return s
}
