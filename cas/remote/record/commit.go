package record

import (
	"fmt"

	"ckptfs/cas"
)

const commitMagic = "CKC2"

// Commit is what one commit of a writer added, or a part of that. Nobody needs it as long as heads and tables
// are there. It tells what they said.
type Commit struct {
	Writer   Writer
	ID       ID      // Head.Commit
	Sequence int64   // Head.Sequence
	Entries  []Entry // ascending (Entry.Compare), at least one
}

// Encode returns the commit record's one encoding. The error wraps cas.ErrTooLarge when the entries need more
// than one.
func (c *Commit) Encode() ([]byte, error) {
	dict, err := newDictionary(c.Writer, c.Entries)
	if err == nil {
		err = dict.checkEntries(c.Entries, maxTailPaths)
	}
	if err == nil && (c.ID.IsZero() || c.Sequence < 1 || len(c.Entries) == 0) {
		err = fmt.Errorf("commit %s, number %d, of %d entries", c.ID, c.Sequence, len(c.Entries))
	}
	if err != nil {
		return nil, fmt.Errorf("commit record of %s: %w", c.Writer, err)
	}
	p := num(append(str([]byte(commitMagic), string(c.Writer)), c.ID[:]...), c.Sequence)
	p = dict.appendEntries(dict.append(p), c.Entries)
	if len(p) > cas.MaxChunk {
		return nil, fmt.Errorf("commit record of %s, %d bytes: %w", c.Writer, len(p), cas.ErrTooLarge)
	}
	return p, nil
}

// DecodeCommit reads what Encode wrote and nothing else. It takes up to 100 bytes of memory for each of p,
// and 16 MiB at most for paths.
func DecodeCommit(p []byte) (*Commit, error) {
	r := newReader(p, "commit record")
	r.Magic(commitMagic)
	c := &Commit{Writer: Writer(r.String()), ID: r.id(), Sequence: r.Num()}
	dict := readDictionary(r, c.Writer)
	c.Entries = dict.readEntries(r, maxTailPaths)
	if err := r.End(); err != nil {
		return nil, err
	}
	again, err := c.Encode()
	if err != nil {
		return nil, corrupt(err)
	}
	if err := checkSame("commit record", p, again); err != nil {
		return nil, err
	}
	return c, nil
}
