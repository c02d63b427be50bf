package inspect

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// counted is a file that counts how often it is opened, and let go of.
type counted struct {
	File
	opens, done int
	err         error
}

func (c *counted) Open() (io.ReaderAt, int64, func(), error) {
	if c.err != nil {
		return nil, 0, nil, c.err
	}
	c.opens++
	return strings.NewReader("x"), 1, func() { c.done++ }, nil
}

// A file that is kept is opened for its first reader, and let go of at the end.
func TestKeep(t *testing.T) {
	n := &counted{}
	f := &file{node: n}
	read := func(opens, done int) {
		t.Helper()
		src, end, err := f.open()
		if err != nil || src == nil {
			t.Fatal(err)
		}
		end()
		if n.opens != opens || n.done != done {
			t.Errorf("%d opens, %d let go of, want %d and %d", n.opens, n.done, opens, done)
		}
	}
	read(1, 1)
	f.keep()()
	read(2, 2)
	release := f.keep()
	n.err = errors.New("not now")
	if _, _, err := f.open(); err != n.err {
		t.Errorf("%v, want %v", err, n.err)
	}
	n.err = nil
	read(3, 2)
	read(3, 2)
	release()
	read(4, 4)
}
