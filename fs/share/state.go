package share

import (
	"context"
	"path"

	"ckptfs/fs/names"
	"ckptfs/fs/steps"
)

// What a name is to the remote.
const (
	NotShared = "no"       // it does not lie below runs/
	Pending   = "pending"  // it is not published yet, or was changed since
	Pushed    = "pushed"   // the remote has it as it is here
	Remote    = "remote"   // likewise, and the bytes of the file are there alone
	Conflict  = "conflict" // the remote has several versions of it
)

// StateOf says what a name is to the remote.
func (s *Share) StateOf(n *names.Node, p string) (string, error) {
	if inStep(p) == "" {
		return NotShared, nil
	}
	k, err := s.known(p)
	if err != nil || k == nil {
		return Pending, err
	}
	st, err := s.stepAt(p)
	if err != nil {
		return "", err
	}
	same := false
	if n.File() != nil {
		a, is, err := settled(n)
		same = err == nil && lookOf(&a, &is, st) == k.look
	} else {
		l := &looker{Share: s, ctx: context.Background()}
		e, _, err := l.entry(n, p, st, k)
		if err != nil {
			return "", err
		}
		same = e == nil
	}
	switch {
	case !same:
		return Pending, nil
	case s.lazy.inConflict(p):
		return Conflict, nil
	case isStub(n):
		return Remote, nil
	}
	return Pushed, nil
}

// stepAt is the step that a path leads to; nil if it is none.
func (s *Share) stepAt(p string) (*steps.Step, error) {
	if p != inStep(p) || p == runOf(p) {
		return nil, nil
	}
	run := path.Base(path.Dir(p))
	all, err := s.o.Steps.Of(run)
	if err != nil {
		return nil, err
	}
	for _, st := range all[run] {
		if st.Name == path.Base(p) {
			return st, nil
		}
	}
	return nil, nil
}
