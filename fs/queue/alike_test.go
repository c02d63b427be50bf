package queue

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func TestJoinAlike(t *testing.T) {
	if err := joinAlike([]error{nil, nil}); err != nil {
		t.Error(err)
	}
	err := joinAlike([]error{unix.EMFILE, errors.New("other"), nil, unix.EMFILE, unix.EMFILE})
	if !errors.Is(err, unix.EMFILE) || err.Error() != "3 files: too many open files\nother" {
		t.Errorf("%q", err)
	}
}
