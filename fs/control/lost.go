package control

import (
	"errors"
	"fmt"
)

// Loss is what the disk did not take of what was written, though write(2) succeeded.
type Loss struct {
	// Files may have lost bytes, until they are written again; More is how many there are besides, which only
	// the log names.
	Files []Failure `json:"files"`
	More  int       `json:"more,omitempty"`
	Other string    `json:"other,omitempty"` // what no file tells of
}

// After is err, or else says that bytes may be lost. l may be nil: none are.
func (l *Loss) After(err error) error {
	if err != nil || l == nil {
		return err
	}
	if n := len(l.Files) + l.More; n > 0 {
		return fmt.Errorf("%d files may have lost bytes, for the disk did not take all that was written to them: write them again from nothing, or remove them", n)
	}
	return errors.New(l.Other)
}
