package main

import (
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

// progress shows a long operation on a terminal, and nothing anywhere else. done clears it away.
func (a *app) progress(doing string) (update func(control.Progress), done func()) {
	if !a.tty || a.json {
		return nil, func() {}
	}
	return text.Progress(a.err, doing)
}
