package share

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"strings"
)

// Changing is called before a program changes what a name has, or puts something else in its place. What the
// name shows is noted for good: what the program does to it is a change of that, after a kill, too.
func (s *Share) Changing(p string) {
	if inStep(p) == "" || s.lazy.isQuiet(p) || strings.HasPrefix(path.Base(p), working) {
		return
	}
	if err := s.settle(p); err != nil {
		s.o.Report(slog.LevelWarn, "what a name showed could not be noted: its change may be a conflict",
			"path", p, "reason", err)
	}
}

// Replacing is Changing of a name that gets what has another now, as a pull does itself.
func (s *Share) Replacing(from, p string) {
	if !strings.HasPrefix(from, working) {
		s.Changing(p)
	}
}

// settle finds out whether a name has what it was about to get, if that is not known. From here on nothing is
// about to come: what a program does to the name is not taken for what a kill left of it.
func (s *Share) settle(p string) error {
	k, err := s.known(p)
	if err == nil && k != nil && k.Next != nil {
		_, cerr := s.clearUnasked(context.Background(), path.Dir(p)) // while it can be told whose that is
		var left bool
		if left, err = s.arrived(p, false); left && err == nil {
			_ = s.lazy.ensure(context.Background(), path.Dir(p)) // it ends what the kill cut off
			_, err = s.arrived(p, true)
		}
		err = errors.Join(err, cerr)
	}
	if err != nil {
		return err
	}
	return s.o.State.Sync()
}

// arrived notes which of what it had and what it was about to get a name has. left: a kill left it between
// both, or a program made something else of it. With end set it is not about to get anything then.
func (s *Share) arrived(p string, end bool) (left bool, err error) {
	k, err := s.known(p)
	if err != nil || k == nil || k.Next == nil {
		return false, err
	}
	n, err := s.o.Names.Resolve(p)
	if err != nil {
		return false, gone(err) // it is made by the next look, or by a program
	}
	defer n.Unpin()
	was := k.Encode()
	_, look, err := s.shown(context.Background(), n, p, k)
	if err != nil {
		return false, err
	}
	if k.Look != look && !end {
		return true, nil
	}
	if k.Next = nil; k.Bare() {
		k = nil
	}
	_, err = s.revise(map[string]revised{p: {was, k.Encode()}}, s.o.State.SetNames)
	return false, err
}
