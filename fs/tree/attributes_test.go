package tree

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCheckAttributes(t *testing.T) {
	if err := CheckAttributes(folder(t, "/proc")); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("/proc: %v", err)
	}
	if err := CheckAttributes(folder(t, t.TempDir())); err != nil {
		t.Error(err)
	}
}
