package patches

import (
	"context"
	"errors"
	"testing"

	"ckptfs/fs/inspect"
)

// What is made of other files of the same steps is made by itself: nobody waits for it, or gets its error.
func TestKeysApart(t *testing.T) {
	var s Kept
	defer s.Close()
	old, changed := errors.New("of the files that were"), errors.New("of those that are")
	now := make(chan struct{})
	first := make(chan error)
	go func() {
		_, err := s.Find(context.Background(), Key{Run: "a", From: "1", To: "2", FilesTo: "was"},
			func() (*inspect.Patch, error) { close(now); first <- nil; return nil, old })
		first <- err
	}()
	<-now
	_, err := s.Find(context.Background(), Key{Run: "a", From: "1", To: "2", FilesTo: "is"},
		func() (*inspect.Patch, error) { <-first; return nil, changed })
	if err != changed {
		t.Error("the second:", err)
	}
	if err := <-first; err != old {
		t.Error("the first:", err)
	}
}
