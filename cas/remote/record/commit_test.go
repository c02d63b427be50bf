package record

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
	"ckptfs/cas/golden"
)

func exampleCommit() *Commit {
	return &Commit{Writer: ArchiveWriter, ID: id(0x03), Sequence: 77, Entries: exampleEntries()}
}

func commitAgain(p []byte) ([]byte, error) {
	c, err := DecodeCommit(p)
	if err != nil {
		return nil, err
	}
	return c.Encode()
}

func TestCommitGolden(t *testing.T) {
	p, err := exampleCommit().Encode()
	if err != nil {
		t.Fatal(err)
	}
	golden.Same(t, "commit.hex", annotateCommit(p))
	if got, err := DecodeCommit(p); err != nil || !reflect.DeepEqual(got, exampleCommit()) {
		t.Errorf("%+v, %v", got, err)
	}
}

func annotateCommit(p []byte) string {
	n := &notes{p: p}
	n.note(4, "magic %q", p[:4])
	n.str("writer")
	n.note(16, "commit")
	n.num("sequence")
	n.title("dictionary")
	n.dictionary()
	for len(n.p) > 0 {
		n.title("entry")
		n.entry()
	}
	return n.String()
}

// What no commit is, neither side takes.
func TestCommitCheck(t *testing.T) {
	for name, change := range map[string]func(*Commit){
		"no id":      func(c *Commit) { c.ID = ID{} },
		"number 0":   func(c *Commit) { c.Sequence = 0 },
		"no entries": func(c *Commit) { c.Entries = nil },
		"no writer":  func(c *Commit) { c.Writer = "" },
		"others'":    func(c *Commit) { c.Writer = me },
		"not sorted": func(c *Commit) { slices.Reverse(c.Entries) },
		"bad entry":  func(c *Commit) { c.Entries[0].Version = 0 },
	} {
		c := exampleCommit()
		change(c)
		if _, err := c.Encode(); err == nil {
			t.Errorf("%s: encoded", name)
		}
		d := rawDictionary(c.Writer, c.Entries)
		p := num(append(str([]byte(commitMagic), string(c.Writer)), c.ID[:]...), c.Sequence)
		p = d.appendEntries(d.append(p), c.Entries)
		if _, err := DecodeCommit(p); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := exampleCommit()
	c.Entries = manyPaths(5_000)
	if _, err := c.Encode(); !errors.Is(err, cas.ErrTooLarge) {
		t.Error(err)
	}
	p, err := exampleCommit().Encode()
	if err != nil {
		t.Fatal(err)
	}
	p[3]++
	if _, err := DecodeCommit(p); !errors.Is(err, cas.ErrNewer) {
		t.Error(err)
	}
}

// Every commit record is what its bytes say, and no other bytes say it.
func TestCommit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &Commit{Writer: ArchiveWriter, ID: id(9),
			Sequence: rapid.Int64Range(1, math.MaxInt64).Draw(t, "sequence"),
			Entries:  drawEntries(t, ArchiveWriter, 1)}
		p, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeCommit(p); err != nil || !reflect.DeepEqual(got, c) {
			t.Fatalf("%v: %+v, want %+v", err, got, c)
		}
		checkAgain(t, mutate(t, p), commitAgain)
	})
}

func FuzzCommit(f *testing.F) {
	p, err := exampleCommit().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p)
	f.Fuzz(func(t *testing.T, p []byte) {
		bounded(t, len(p), 1000, 1<<16+4*maxTailPaths, func() { checkAgain(t, p, commitAgain) })
	})
}
