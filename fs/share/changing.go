package share

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"strings"

	"ckptfs/fs/share/known"
	"ckptfs/fs/share/shared"
)

// Changing is called before a program changes what a name has, or puts something else in its place. What the
// name shows is noted for good: what the program does to it is a change of that, after a kill, too.
func Changing(s *Share, p string) {
	if shared.Step(p) == "" || s.lazy.isQuiet(p) || strings.HasPrefix(path.Base(p), working) {
		return
	}
	if err := (settling{s}).settle(p); err != nil {
		s.o.Report(slog.LevelWarn, "what a name showed could not be noted: its change may be a conflict",
			"path", p, "reason", err)
	}
}

// Replacing is Changing of a name that gets what has another now, as a pull does itself.
func Replacing(s *Share, from, p string) {
	if !strings.HasPrefix(from, working) {
		Changing(s, p)
	}
}

// settling finds out what a kill left of names.
type settling struct{ *Share }

// settle finds out whether a name has what it was about to get, if that is not known. From here on nothing is
// about to come: what a program does to the name is not taken for what a kill left of it.
func (s settling) settle(p string) error {
	k, err := s.known(p)
	if k == nil || err != nil {
		return err
	}
	if k.Next != nil {
		err = s.settlePending(p)
	}
	return errors.Join(err, s.o.State.Sync()) // else a kill may take what a look noted of it
}

// settlePending is settle of a name that was about to get something.
func (s settling) settlePending(p string) error {
	// What a pull left beside it is looked at while it can be told whose that is.
	_, cerr := clearUnasked(context.Background(), s.Share, path.Dir(p))
	left, err := s.arrived(p, false)
	if left && err == nil {
		_ = s.lazy.ensure(context.Background(), path.Dir(p)) // it ends what the kill cut off
		_, err = s.arrived(p, true)
	}
	return errors.Join(err, cerr)
}

// settleBelow is settle of what is known at or below a path. It reports whether that is anything.
func (s settling) settleBelow(at string) (has bool, err error) {
	var pending []string
	err = s.o.State.EachName(at, func(p string, b []byte) error {
		k, err := known.Decode(p, b)
		if has = true; err == nil && k.Next != nil { // else it is found out again
			pending = append(pending, p)
		}
		return nil
	})
	for _, p := range pending {
		err = errors.Join(err, s.settle(p))
	}
	if err == nil && has {
		err = s.o.State.Sync() // else a crash may take what is known of what goes
	}
	return has, err
}

// arrived notes which of what it had and what it was about to get a name has. left: a kill left it between
// both, or a program made something else of it. With end set it is not about to get anything then.
func (s settling) arrived(p string, end bool) (left bool, err error) {
	k, err := s.known(p)
	if err != nil || k == nil || k.Next == nil {
		return false, err
	}
	n, err := s.o.Names.Resolve(p)
	if err != nil {
		return false, shared.Gone(err) // it is made by the next look, or by a program
	}
	defer n.Unpin()
	was := k.Encode()
	_, look, err := shown(context.Background(), s.Share, n, p, k)
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
