package ui

import (
	"slices"

	"ckptfs/cmd/ckptfs/ui/known"
)

// unread are the steps of which not all metrics are known, the latest first.
type unread struct {
	Steps []unreadStep
	More  int64 // steps besides
}

type unreadStep struct {
	link
	Why string
}

// mostUnread is how many of them are named.
const mostUnread = 5

func unreadOf(l *known.Log) (u unread) {
	for _, st := range slices.Backward(l.Steps) {
		switch {
		case st.Problem == "":
		case len(u.Steps) == mostUnread:
			u.More++
		default:
			to := pathURL("runs/" + l.Run + "/" + st.Name)
			u.Steps = append(u.Steps, unreadStep{link{shown(st.Name), to}, cut(st.Problem, mostTitle)})
		}
	}
	return u
}
