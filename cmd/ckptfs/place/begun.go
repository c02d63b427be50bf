package place

import (
	"fmt"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/inplace"
)

// Begun says that a move is not over, and what ends it.
func Begun(b *inplace.Begun) string {
	if b.Moving {
		return fmt.Sprintf("a move of %s is under way, with the store %s: `%s` has not ended yet", b.Dir, b.Store, text.Command(b.Words()...))
	}
	return fmt.Sprintf("a move of %s was begun, with the store %s, and did not end: `%s` ends it", b.Dir, b.Store, text.Command(b.Words()...))
}
