package view

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"unicode/utf8"
)

// NpySuffix ends the name of a tensor's file.
const NpySuffix = ".npy"

// TensorFile is the name of a tensor's file: at most 255 bytes, with what a name cannot hold escaped as %XX.
// What would be longer ends in a hash.
func TensorFile(tensor string) string {
	var b strings.Builder
	for i := 0; i < len(tensor); {
		r, n := utf8.DecodeRuneInString(tensor[i:])
		if c := tensor[i]; r == utf8.RuneError && n == 1 || c < 0x20 || c == '/' || c == '%' || c == 0x7f {
			fmt.Fprintf(&b, "%%%02X", c)
			n = 1
		} else {
			b.WriteString(tensor[i : i+n])
		}
		i += n
	}
	name := b.String()
	if len(name)+len(NpySuffix) <= maxNameLen {
		return name + NpySuffix
	}
	cut := 200 // not within a character, nor an escape
	for !utf8.RuneStart(name[cut]) {
		cut--
	}
	if i := strings.LastIndexByte(name[:cut], '%'); i >= 0 && cut-i < 3 {
		cut = i
	}
	sum := sha256.Sum256([]byte(tensor))
	return fmt.Sprintf("%s%%~%x%s", name[:cut], sum[:8], NpySuffix)
}

// IsTensorFile reports whether name is TensorFile(tensor), without memory for most.
func IsTensorFile(tensor, name string) bool {
	plain := len(tensor)+len(NpySuffix) <= maxNameLen
	for i := 0; i < len(tensor) && plain; i++ {
		c := tensor[i]
		plain = c >= 0x20 && c < 0x7f && c != '/' && c != '%'
	}
	if plain {
		stem, ok := strings.CutSuffix(name, NpySuffix)
		return ok && stem == tensor
	}
	return TensorFile(tensor) == name
}

// maxNameLen is the host's bound on a name, in bytes.
const maxNameLen = 255
