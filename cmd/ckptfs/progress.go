package main

import (
	"ckptfs/fs/control"
)

// progress shows a long operation on a terminal, and nothing anywhere else. done clears it away.
func (a *app) progress(doing string) (update func(control.Progress), done func()) {
	return shell{a}.Saying(func() string { return doing })
}
