package steps

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"ckptfs/fs/tree"
	"ckptfs/fs/view"
	"ckptfs/index/runs"
)

// IsCheckpoint reports whether a name is one that checkpoints have.
func IsCheckpoint(name string) bool {
	ext := path.Ext(name)
	return ext == view.Suffix || slices.Contains(view.Sources, ext)
}

// shardName is the end of the name of a file that is a part of a checkpoint.
var shardName = regexp.MustCompile(`-of-[0-9]+\.[a-z0-9]+$`)

// numberedCheckpoints chooses the files of a run's directory that are a step each, as Lightning's
// ModelCheckpoint(dirpath=RUN) and many a loop save them: checkpoints whose names differ in their numbers
// only. Names of several patterns may be parts of one checkpoint, so none is a step; but a .ckpt is a whole
// one, whatever its name. What is left of such a step without its optimizer's state (Weights) is a step, too.
func numberedCheckpoints(files []tree.DirEntry) (steps []tree.DirEntry) {
	whole := false
	patterns, stems, exts := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, e := range files {
		stem := strings.TrimSuffix(e.Name, path.Ext(e.Name))
		pattern, numbers := runs.Numbers(stem)
		if !IsCheckpoint(e.Name) || len(numbers) == 0 || shardName.MatchString(e.Name) {
			continue
		}
		steps = append(steps, e)
		if strings.HasSuffix(e.Name, Weights) {
			continue
		}
		patterns[pattern], stems[stem], exts[path.Ext(e.Name)] = true, true, true
		whole = whole || strings.HasSuffix(e.Name, LightningSuffix)
	}
	if (len(patterns) > 1 || len(exts) > 1) && !whole {
		return nil
	}
	return slices.DeleteFunc(steps, func(e tree.DirEntry) bool {
		if stem, left := strings.CutSuffix(e.Name, Weights); left {
			pattern, _ := runs.Numbers(stem)
			return stems[stem] || !whole && len(patterns) > 0 && !patterns[pattern]
		}
		return whole && !strings.HasSuffix(e.Name, LightningSuffix)
	})
}
