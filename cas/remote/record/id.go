package record

import (
	"bytes"
	"encoding/hex"
	"io"
)

// ID is 16 random bytes, never used twice: the name of an object, a remote, a local store, or a commit.
type ID [16]byte

// String is the id in hex.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether id is the zero value, which names nothing.
func (id ID) IsZero() bool { return id == ID{} }

// DrawID makes an id of random bytes.
func DrawID(random io.Reader) (id ID, err error) {
	_, err = io.ReadFull(random, id[:])
	return id, err
}

func compareIDs(a, b ID) int { return bytes.Compare(a[:], b[:]) }
