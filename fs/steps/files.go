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
// one, whatever its name.
func numberedCheckpoints(files []tree.DirEntry) (steps []tree.DirEntry) {
	whole := false
	patterns := map[string]bool{}
	for _, e := range files {
		pattern, numbers := runs.Numbers(strings.TrimSuffix(e.Name, path.Ext(e.Name)))
		if !IsCheckpoint(e.Name) || len(numbers) == 0 || shardName.MatchString(e.Name) {
			continue
		}
		steps = append(steps, e)
		patterns[pattern+path.Ext(e.Name)] = true
		whole = whole || strings.HasSuffix(e.Name, lightningSuffix)
	}
	if whole {
		return slices.DeleteFunc(steps, func(e tree.DirEntry) bool {
			return !strings.HasSuffix(e.Name, lightningSuffix)
		})
	}
	if len(patterns) > 1 {
		return nil
	}
	return steps
}
