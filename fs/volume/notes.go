package volume

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"

	"ckptfs/formats"
	"ckptfs/formats/detect"
)

// formatNotes say why files of a format list fewer tensors than one may look for.
var formatNotes = map[string]string{
	"xgboost-json": trees("XGBoost"), "xgboost-ubj": trees("XGBoost"), "lightgbm": trees("LightGBM"),
	"pickle":      "pickled objects: of their arrays those that have a name and at least 4 KiB are listed; trees have no names",
	"joblib":      "objects pickled by joblib: of their arrays those that have a name and at least 4 KiB are listed; trees have no names",
	"distcp":      "tensors are called by their numbers: no .metadata beside the file names them",
	"arrow":       "a table: its columns are stored as buffers, which are no tensors",
	"zstd-frames": "compressed parts of arrays: `ckptfs show` of the folder that Orbax wrote lists those",
}

func trees(by string) string {
	return "a model of boosted trees by " + by + ", stored in chunks by content: it holds no tensors, and trees have no names"
}

func notListed(why string, n int) string { return fmt.Sprintf("not listed: %s (%d)", why, n) }

// notes says what of a file is not listed, and why.
func (v *Volume) notes(n *Node, l *formats.Layout) []string {
	var out []string
	if text := formatNotes[l.Format]; text != "" {
		out = append(out, text)
	}
	if l.Format == formats.BlobLayout(0).Format {
		if r, size, done, err := v.peruse(n); err == nil {
			if why := detect.Why(path.Base(v.Path(n)), io.NewSectionReader(r, 0, size), size); why != "" {
				out = append(out, "no tensors are listed: "+why)
			}
			done()
		}
	}
	if !l.Partial {
		return out
	}
	if l.Left == nil { // a manifest does not say
		if r, size, done, err := v.peruse(n); err == nil {
			if again, err := v.detect(n, io.NewSectionReader(r, 0, size), size); err == nil && again.Format == l.Format {
				l = again
			}
			done()
		}
	}
	for _, why := range slices.Sorted(maps.Keys(l.Left)) {
		out = append(out, notListed(why, l.Left[why]))
	}
	return out
}
