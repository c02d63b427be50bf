package inspect

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"

	"ckptfs/formats"
	"ckptfs/formats/detect"
)

func notListed(why string, n int) string { return fmt.Sprintf("not listed: %s (%d)", why, n) }

// notes says what of a file is not listed, and why.
func (ins *Inspector) notes(n File, l *formats.Layout) []string {
	var out []string
	if text := detect.About(l.Format).Note; text != "" {
		out = append(out, text)
	}
	if l.Format == formats.BlobLayout(0).Format {
		if r, size, done, err := n.Open(); err == nil {
			if why := ins.detect.Why(path.Base(n.Path()), io.NewSectionReader(r, 0, size), size,
				ins.keeps); why != "" {
				out = append(out, "no tensors are listed: "+why)
			}
			done()
		}
	}
	if !l.Partial {
		return out
	}
	if l.Left == nil { // a manifest does not say
		if again, err := n.Detect(); err == nil && again.Format == l.Format {
			l = again
		}
	}
	for _, why := range slices.Sorted(maps.Keys(l.Left)) {
		out = append(out, notListed(why, l.Left[why]))
	}
	return out
}
