package volume

import (
	"context"
	"testing"

	"ckptfs/fs/control"
	"ckptfs/fs/maintenance"
)

// Status waits for no file, however long that is held, and counts the files that wait all the same.
func TestStatusWaitsForNoFile(t *testing.T) {
	r := newRig(t)
	r.withoutPacking()
	r.write("a", random(100<<10, 1))
	r.write("b", random(200<<10, 2))
	n := r.find("a")
	defer r.forget(n)
	n.File().Lock()
	defer n.File().Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := make(chan *control.Status, 1)
	go func() {
		if s, err := r.Status(ctx); err == nil {
			got <- s
		}
	}()
	select {
	case s := <-got:
		if s.Queue.Files != 2 || s.Queue.Bytes != 300<<10 || s.UnpackedBytes != 300<<10 {
			t.Errorf("%+v", s)
		}
	case <-ctx.Done():
		t.Fatal("status waits for a file")
	}
}

// As long as the start looks at files, status and sync say how far it is.
func TestStatusWhileLooking(t *testing.T) {
	r := newRig(t)
	r.write("a", []byte("a"))
	<-r.surveyed
	if s, err := r.Status(t.Context()); err != nil || s.Looking != nil {
		t.Errorf("%+v, %v", s, err)
	}
	r.survey = &maintenance.Survey{Passes: r.passes, Stop: func() bool { return false }}
	looking := make(chan struct{})
	r.Volume.surveyed = looking
	r.survey.Run()
	if s, err := r.Status(t.Context()); err != nil || s.Looking == nil || *s.Looking != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	var told control.Progress
	err := r.Sync(t.Context(), func(p control.Progress) {
		if told == (control.Progress{}) {
			told = p
			close(looking)
		}
	})
	if err != nil || told.Phase != "looking at names" || told.DoneFiles != 1 {
		t.Errorf("%+v, %v", told, err)
	}
}
