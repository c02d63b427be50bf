package share

import (
	"context"
	"errors"
	"path"

	"ckptfs/cas/remote/record"
	"ckptfs/fs/names"
	"ckptfs/fs/share/known"
	"ckptfs/fs/share/shared"
	"ckptfs/fs/share/versions"
	"ckptfs/fs/steps"
)

// What a name is to the remote.
const (
	NotShared = "no"       // it lies in no run, or has a name that is not published
	Pending   = "pending"  // it is not published yet, or was changed since
	Pushed    = "pushed"   // the remote has it as it is here
	Remote    = "remote"   // likewise, and the bytes of the file are there alone
	Conflict  = "conflict" // the remote has several versions of it
)

// StateOf says what a name is to the remote.
func (s *Share) StateOf(n *names.Node, p string) (string, error) {
	if !Shares(p) || p == shared.Run(p) && !n.IsDir() {
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
	same, err := s.published(n, p, st, k)
	switch {
	case err != nil:
		return "", err
	case !same || s.lazy.stays(p):
		return Pending, nil
	case s.versions.Has(p):
		return Conflict, nil
	case isStub(n):
		return Remote, nil
	}
	return Pushed, nil
}

// published reports whether the remote has a name as it is here. Where only packing could tell, it has not.
func (s *Share) published(n *names.Node, p string, st *steps.Step, k *known.Name) (bool, error) {
	l := &looker{Share: s, ctx: context.Background()}
	if n.File() == nil {
		e, _, err := l.entry(n, p, st, k)
		return err == nil && (e == nil || known.ContentOf(e) == k.Content), err // its metrics are seen late
	}
	a, is, err := settled(n)
	if err != nil && !errors.Is(err, errUnpacked) {
		return false, nil
	}
	if lookOf(&a, &is, st) == k.Look { // also while it is packed again
		return true, nil
	}
	if err != nil {
		return false, nil
	}
	if a.Size > record.MaxInline && !is.Packed() {
		return false, nil
	}
	e, _, err := l.entry(n, p, st, nil) // its local copy may have come or gone since
	return err == nil && e != nil && known.ContentOf(e) == k.Content, nil
}

// Versions finds the names of which the remote has several versions.
func (s *Share) Versions() *versions.Finder { return s.versions }

// Expect keeps where the plan of a loser's file is, so that its bytes are found.
func (s *Share) Expect(l versions.Loser) error { return s.o.State.SetFiles([]*record.File{l.File}) }

// stepAt is the step that a path leads to; nil if it is none.
func (s *Share) stepAt(p string) (*steps.Step, error) {
	if p != shared.Step(p) || p == shared.Run(p) {
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
