package view

import (
	"path"
	"slices"
	"strings"

	"ckptfs/formats"
	"ckptfs/formats/detect"
	"ckptfs/formats/safetensors"
)

// Suffix ends the names of views.
const Suffix = ".safetensors"

// Sources are the endings of the names that a view may stand beside, best first.
var Sources = detect.Views()

// Stem is the name of a possible source without its ending.
func Stem(source string) (string, bool) {
	i := strings.LastIndexByte(source, '.')
	if i <= 0 || !slices.Contains(Sources, source[i:]) {
		return "", false
	}
	return source[:i], true
}

// Mark tells by a bit for each of Sources whether a name has that ending.
func Mark(name string) uint32 {
	if i := slices.Index(Sources, path.Ext(name)); i >= 0 {
		return 1 << i
	}
	return 0
}

// SizeOf is the size of the view of a file of this layout in bytes, 0 if it has none: there are no tensors,
// it is itself a safetensors file, or the view would not hold all that the file holds.
func SizeOf(l *formats.Layout) int64 {
	if l.Format == safetensors.Name || l.Partial {
		return 0
	}
	plan, err := Safetensors(l.Regions, l.Tensors)
	if err != nil {
		return 0
	}
	return plan.Size()
}
