package virtual

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/formats/dcp"
	"ckptfs/fs/plans"
	"ckptfs/fs/tree"
	"ckptfs/fs/virtual/ways"
)

// maxMetadata bounds the .metadata of a checkpoint, in bytes.
const maxMetadata = 16 << 20

func isMetadata(name string) bool { return name == dcp.Metadata }

func isConfig(e tree.DirEntry) bool { return e.Name == modelConfig }

// hfFile is a name of the folder of a checkpoint of Megatron-LM as transformers loads it: the file that has
// all tensors, and the config. Other files are links to themselves, but for those that it is made of.
func (d makeTree) hfFile(v *Virtual, c *tree.Asker, name string) (entry, error) {
	if strings.HasSuffix(name, dcp.Suffix) || slices.Contains(ways.MegatronHidden, name) {
		return entry{}, errNoFile
	}
	if name == ways.OneName {
		w, err := d.hfWhole(v, c)
		if err != errNoFile {
			return w, err
		}
	}
	o, err := d.own(v, c, name)
	if err == nil {
		return d.itself(o, name), nil
	}
	switch name {
	case modelConfig:
		if o, at, err := d.hfConfig(v, c); err == nil && d.has(ways.IsMegatron) {
			return makeTree{d.how, d.at, path.Dir(at), d.src}.linked(o, d, name), nil
		} else if err == nil {
			o.drop()
		}
	case ways.OneName:
		err = fmt.Errorf("%w (%s, or the folders of ranks, beside it)", errNoFile, dcp.Metadata)
	}
	return entry{}, err
}

// linked is a link from a folder to a file of d, which is another.
func (d makeTree) linked(o *operand, from makeTree, name string) entry {
	e := d.itself(o, name)
	depth := 2 + len(strings.Split(path.Join(from.at, from.rel), "/")) // with .ckptfs/make
	target := strings.Repeat("../", depth) + path.Join(d.rel, name)
	e.key, e.sight = target, byPath
	e.link = func(*Virtual, *tree.Asker) (string, error) { return target, nil }
	return e
}

// has reports whether a name in the folder is such.
func (d makeTree) has(is func(name string) bool) bool {
	real, err := d.src.ListQuietly()
	return err == nil && slices.ContainsFunc(real, func(e tree.DirEntry) bool { return is(e.Name) })
}

// hfConfig is the config of the model, and its path.
func (d makeTree) hfConfig(v *Virtual, c *tree.Asker) (*operand, string, error) {
	for _, at := range ways.MegatronConfigs {
		p := path.Join(d.rel, at)
		if strings.HasPrefix(p, "../") {
			continue
		}
		n, err := v.o.Names.Resolve(p)
		if err != nil {
			continue
		}
		n.Unpin()
		o, err := v.operandFor(c, p)
		if errors.Is(err, errNoFile) {
			break // c may not read it: another is not the model's
		}
		if err == nil {
			o.as = modelConfig
		}
		return o, p, err
	}
	return nil, "", fmt.Errorf("%w: there is no %s of the model, in its folder, in that above, or in huggingface beside it",
		plans.ErrNone, modelConfig)
}

// hfWhole is the file that has all tensors; errNoFile when the folder is no checkpoint. Who sees it may list
// the folder and read all files that it is made of.
func (d makeTree) hfWhole(v *Virtual, c *tree.Asker) (entry, error) {
	if !d.has(ways.IsMegatron) || !v.visible(c, byPath, d.src) {
		return entry{}, errNoFile
	}
	how := d.how
	var of []*operand
	side, err := d.own(v, c, dcp.Metadata)
	if err == nil {
		side.as = dcp.Metadata
		of, err = d.partFiles(v, c, func(name string) bool { return strings.HasSuffix(name, dcp.Suffix) })
		if err == nil && len(of) == 0 {
			err = fmt.Errorf("%w: no file of parts is there", plans.ErrNone)
		}
		if err != nil {
			side.drop()
			return entry{}, err
		}
		of = append(of, side)
		if common, err := d.own(v, c, ways.MegatronCommon); err == nil {
			common.as = ways.MegatronCommon
			of = append(of, common)
		} else if d.has(ways.IsMegatronCommon) {
			for _, o := range of {
				o.drop()
			}
			return entry{}, err
		}
	} else if d.has(isMetadata) { // c may not read it: the ranks' are no other way
		return entry{}, err
	} else {
		how.kind = makeHFRanks
		if of, err = d.hfRanks(v, c); err != nil {
			return entry{}, err
		}
	}
	config, _, err := d.hfConfig(v, c)
	if err != nil {
		for _, o := range of {
			o.drop()
		}
		return entry{}, err
	}
	w, err := v.newComputed(how, append(of, config), nil)
	if err != nil {
		return entry{}, err
	}
	return w.entry(byPath), nil
}

// hfRanks are the files of all ranks, in their order.
func (d makeTree) hfRanks(v *Virtual, c *tree.Asker) ([]*operand, error) {
	real, err := d.src.ListQuietly()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range real {
		if e.Mode == unix.S_IFDIR && ways.IsMegatronRank(e.Name) {
			names = append(names, e.Name)
		}
	}
	inOrder, err := ways.MegatronGroup(names)
	if err != nil {
		return nil, err
	}
	return operandsBy(inOrder, func(name string) (*operand, error) {
		o, err := v.operandFor(c, path.Join(d.rel, name, plans.MegatronFile))
		if err == nil {
			o.as = name
		}
		return o, err
	})
}

// makeHF makes the plan of a file that is made of a checkpoint of Megatron-LM, as hfWhole found it.
func (w *computed) makeHF() (*plans.Plan, error) {
	beside := map[string]*operand{} // that is no file of tensors
	parts := w.of
	for i, o := range w.of {
		if o.as == modelConfig || o.as == dcp.Metadata || o.as == ways.MegatronCommon {
			parts = parts[:min(i, len(parts))]
			beside[o.as] = o
		}
	}
	sources, names, err := w.sources(parts)
	if err != nil {
		return nil, err
	}
	config, err := beside[modelConfig].all(maxSide)
	if err != nil {
		return nil, err
	}
	said := beside[ways.MegatronCommon]
	if w.how.kind == makeHFRanks {
		said = parts[0]
	}
	var args *plans.MegatronArgs
	if said != nil {
		if args, err = said.args(); err != nil {
			return nil, err
		}
	}
	if w.how.kind == makeHFRanks {
		return plans.HuggingFaceRanks(sources, args, config)
	}
	metadata, err := beside[dcp.Metadata].all(maxMetadata)
	if err != nil {
		return nil, err
	}
	return plans.HuggingFace(sources, names, args, metadata, config)
}

// args are the arguments of Megatron-LM that an operand has.
func (o *operand) args() (args *plans.MegatronArgs, err error) {
	_, err = o.source(func() (*plans.Source, error) {
		args, err = plans.OpenMegatronArgs(o, o.size)
		return nil, err
	})
	return args, err
}
