package maintenance

import (
	"bytes"
	"cmp"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/spilled"
)

// compacted is a file as a compaction found it.
type compacted struct {
	manifest cas.Hash
	size     int64
	mtime    int64
	path     int64 // its place among the paths
}

// compactedFiles are the files that a compaction goes through, one for each manifest. They may be millions:
// of each it has four bytes in memory, and the rest in files without a name.
type compactedFiles struct {
	files *spilled.Slab[compacted]
	paths *spilled.Text
	to    *spilled.Set // manifests of the files to come
	of    *spilled.Set // and of all
	order []uint32
	bytes int64 // of all
}

func newCompacted(dir *disk.Folder) *compactedFiles {
	return &compactedFiles{files: spilled.NewSlab[compacted](dir), paths: spilled.NewText(dir),
		to: spilled.NewSet(dir), of: spilled.NewSet(dir)}
}

func (c *compactedFiles) len() int { return len(c.order) }

// add adds a file, unless one of the same manifest is there.
func (c *compactedFiles) add(path string, f compacted) error {
	if !c.to.Add(short(f.manifest)) {
		return nil
	}
	c.of.Add(short(f.manifest))
	return spilled.Guard(func() error {
		f.path = c.paths.Add(path)
		*c.files.New() = f
		c.order = append(c.order, uint32(len(c.order)))
		c.bytes += f.size
		return nil
	})
}

// named reports whether a file has a manifest. Where that is not known any more none has.
func (c *compactedFiles) named(h cas.Hash) bool { return c.of.MayHave(short(h)) && c.of.Err() == nil }

// toCome reports whether a file of a manifest is still to come. Where that is not known any more it is.
func (c *compactedFiles) toCome(h cas.Hash) bool {
	return c.to.MayHave(short(h)) || c.to.Err() != nil
}

// done says that no file of a manifest is to come.
func (c *compactedFiles) done(h cas.Hash) { c.to.Remove(short(h)) }

// each calls f with all files, the oldest first. Its error ends it.
func (c *compactedFiles) each(f func(is *compacted, path string) error) error {
	var p, q []byte
	err := spilled.Guard(func() error {
		slices.SortFunc(c.order, func(i, j uint32) int {
			a, b := c.files.At(int(i)), c.files.At(int(j))
			if a.mtime != b.mtime {
				return cmp.Compare(a.mtime, b.mtime)
			}
			p, q = c.paths.Append(p[:0], a.path), c.paths.Append(q[:0], b.path)
			return bytes.Compare(p, q)
		})
		return nil
	})
	if err != nil {
		return err
	}
	for _, i := range c.order {
		var is compacted
		err := spilled.Guard(func() error {
			is = *c.files.At(int(i))
			p = c.paths.Append(p[:0], is.path)
			return nil
		})
		if err == nil {
			err = f(&is, string(p))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// manifests calls f with the manifest of each file.
func (c *compactedFiles) manifests(f func(h cas.Hash)) error {
	for i := range c.order {
		var h cas.Hash
		if err := spilled.Guard(func() error {
			h = c.files.At(i).manifest
			return nil
		}); err != nil {
			return err
		}
		f(h)
	}
	return nil
}
