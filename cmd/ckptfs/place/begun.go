package place

import (
	"cmp"
	"fmt"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/inplace"
)

// Copying says that a copy of a folder into a store is not over, and what ends it.
func Copying(store string, c *inplace.Copy) string {
	of, on := cmp.Or(c.Dir, "a folder"), "the adopt that began it"
	if c.Dir != "" {
		on = "`" + text.Command(c.Words(store)...) + "`"
	}
	if c.Moving {
		return fmt.Sprintf("a copy of %s into the store %s is under way, or was cut short: %s goes on with it", of, store, on)
	}
	return fmt.Sprintf("a copy of %s into the store %s was cut short: %s goes on with it, `rm -r %s` gives it up", of, store, on,
		text.Word(c.Path))
}

// Begun says that a move is not over, and what ends it.
func Begun(b *inplace.Begun) string {
	if b.Moving {
		return fmt.Sprintf("a move of %s is under way, with the store %s: `%s` has not ended yet", b.Dir, b.Store, text.Command(b.Words()...))
	}
	return fmt.Sprintf("a move of %s was begun, with the store %s, and did not end: `%s` ends it", b.Dir, b.Store, text.Command(b.Words()...))
}
