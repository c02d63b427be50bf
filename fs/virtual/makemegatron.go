package virtual

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"ckptfs/fs/plans"
	"ckptfs/fs/tree"
	"ckptfs/fs/virtual/ways"
)

// megatronFile is a name of the folder of a model in Megatron-LM's format, or a link to a file of the folder
// itself; the model's own weights are not there.
func (d makeTree) megatronFile(v *Virtual, c *tree.Asker, name string) (entry, error) {
	if !ways.IsMegatronRelease(name) || d.has(ways.IsMegatronRelease) {
		return d.besideWeights(v, c, name)
	}
	w, err := d.ofModel(v, c, d.how) // of the first rank
	if err != nil {
		return entry{}, err
	}
	w.drop()
	d.src.Pin()
	if name == ways.MegatronLatest {
		return entry{key: makeLatest{d}, data: []byte(ways.MegatronRelease), src: d.src, sight: byPath}, nil
	}
	return makeRanks{d, true}.entry(), nil
}

// listMegatron lists what is made of the folder, if it is a model's.
func (d makeTree) listMegatron(v *Virtual, c *tree.Asker) []tree.DirEntry {
	w, err := d.ofModel(v, c, d.how)
	if err != nil {
		return nil
	}
	w.drop()
	if d.has(ways.IsMegatronRelease) {
		return nil
	}
	return []tree.DirEntry{
		{Name: ways.MegatronLatest, Mode: unix.S_IFREG}, {Name: ways.MegatronRelease, Mode: unix.S_IFDIR},
	}
}

// makeLatest is the identity of a file that says which checkpoint is meant.
type makeLatest struct{ makeTree }

// makeRanks is the folder with those of all ranks, or that of one, by the tree's folder of the model.
type makeRanks struct {
	of  makeTree
	all bool
}

func (d makeRanks) entry() entry { return entry{dir: d, key: d, src: d.of.src, sight: byPath} }

func (d makeRanks) lookup(_ context.Context, v *Virtual, c *tree.Asker, name string) (entry, error) {
	if !d.all {
		return madeNames(d.file).lookup(v, c, name)
	}
	return madeNames(d.rank).lookup(v, c, name)
}

// rank is the folder of a rank.
func (d makeRanks) rank(_ *Virtual, _ *tree.Asker, name string) (entry, error) {
	ranks := d.of.how.ranks
	for r := range ranks {
		if name == ways.MegatronRank(r) {
			d.of.how.rank = r
			d.of.src.Pin()
			return makeRanks{d.of, false}.entry(), nil
		}
	}
	return entry{}, fmt.Errorf("%w: it is none of %s to %s", plans.ErrNone, ways.MegatronRank(0), ways.MegatronRank(ranks-1))
}

// file is the file of a rank.
func (d makeRanks) file(v *Virtual, c *tree.Asker, name string) (entry, error) {
	if name != plans.MegatronFile {
		return entry{}, errNoFile
	}
	return d.of.ofModel(v, c, d.of.how)
}

func (d makeRanks) list(v *Virtual, c *tree.Asker) (out []tree.DirEntry, err error) {
	if !d.all {
		if w, err := d.file(v, c, plans.MegatronFile); err == nil {
			w.drop()
			out = append(out, tree.DirEntry{Name: plans.MegatronFile, Mode: unix.S_IFREG})
		}
		return out, nil
	}
	for r := range d.of.how.ranks {
		out = append(out, tree.DirEntry{Name: ways.MegatronRank(r), Mode: unix.S_IFDIR})
	}
	return out, nil
}
