package virtual

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/formats/dcp"
	"ckptfs/fs/plans"
	"ckptfs/fs/tree"
	"ckptfs/fs/virtual/ways"
)

// hfConfigs are where the config.json of a checkpoint of Megatron-LM is looked for, from its folder on.
var hfConfigs = []string{stateConfig, "../" + stateConfig, "../huggingface/" + stateConfig}

// maxMetadata bounds the .metadata of a checkpoint, in bytes.
const maxMetadata = 16 << 20

// hfHidden are the other files of such a checkpoint.
var hfHidden = []string{dcp.Metadata, "common.pt", "metadata.json"}

// hfRank is the name of the folder of a rank, without pipelines and experts, and of one that has them.
var hfRank = regexp.MustCompile(`^mp_rank_([0-9]+)(_.*)?$`)

func isConfig(e tree.DirEntry) bool { return e.Name == stateConfig }

// hfFile is a name of the folder of a checkpoint of Megatron-LM as transformers loads it: the file that has
// all tensors, and the config. Other files are links to themselves, but for those that it is made of.
func (d makeTree) hfFile(v *Virtual, c *tree.Asker, name string) (entry, error) {
	if strings.HasSuffix(name, dcp.Suffix) || slices.Contains(hfHidden, name) {
		return entry{}, errNoFile
	}
	if name == oneName {
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
	case stateConfig:
		if o, at, err := d.hfConfig(v, c); err == nil && d.isMegatron(v) {
			return makeTree{d.how, d.at, path.Dir(at), d.src}.linked(o, d, name), nil
		} else if err == nil {
			o.drop()
		}
	case oneName:
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

// isMegatron reports whether the folder looks like a checkpoint.
func (d makeTree) isMegatron(v *Virtual) bool {
	real, err := d.src.ListQuietly()
	return err == nil && slices.ContainsFunc(real, func(e tree.DirEntry) bool {
		return e.Name == dcp.Metadata || e.Mode == unix.S_IFDIR && hfRank.MatchString(e.Name)
	})
}

// hfConfig is the config of the model, and its path.
func (d makeTree) hfConfig(v *Virtual, c *tree.Asker) (*operand, string, error) {
	for _, at := range hfConfigs {
		p := path.Join(d.rel, at)
		if strings.HasPrefix(p, "..") {
			continue
		}
		if o, err := v.operandFor(c, p); err == nil {
			o.as = stateConfig
			return o, p, nil
		}
	}
	return nil, "", fmt.Errorf("%w: there is no %s of the model, in its folder, or in that above", plans.ErrNone, stateConfig)
}

// hfWhole is the file that has all tensors; errNoFile when the folder is no checkpoint. Who sees it may list
// the folder and read all files that it is made of.
func (d makeTree) hfWhole(v *Virtual, c *tree.Asker) (entry, error) {
	if !d.isMegatron(v) || !v.visible(c, byPath, d.src) {
		return entry{}, errNoFile
	}
	how := d.how
	var of []*operand
	side, err := d.own(v, c, dcp.Metadata)
	if err == nil {
		side.as = dcp.Metadata
		of, err = d.partFiles(v, c, func(name string) bool { return strings.HasSuffix(name, dcp.Suffix) })
		if err != nil {
			side.drop()
			return entry{}, err
		}
		of = append(of, side)
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
		switch m := hfRank.FindStringSubmatch(e.Name); {
		case m == nil || e.Mode != unix.S_IFDIR:
		case m[2] != "":
			return nil, fmt.Errorf("%w: %s is of pipelines or experts", plans.ErrNone, e.Name)
		default:
			names = append(names, e.Name)
		}
	}
	if len(names) > maxParts {
		return nil, fmt.Errorf("%w: of %d ranks; it takes 1 to %d", plans.ErrNone, len(names), maxParts)
	}
	var inOrder []string
	for r := range names {
		inOrder = append(inOrder, ways.MegatronRank(r))
		if !slices.Contains(names, ways.MegatronRank(r)) {
			return nil, fmt.Errorf("%w: %s is not among the %d ranks that are there", plans.ErrNone, ways.MegatronRank(r),
				len(names))
		}
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
	n := len(w.of) - 1 // the config is the last one
	config, err := w.of[n].all(maxSide)
	if err != nil {
		return nil, err
	}
	if w.how.kind == makeHFRanks {
		sources, _, err := w.sources(w.of[:n])
		if err != nil {
			return nil, err
		}
		return plans.HuggingFaceRanks(sources, config)
	}
	sources, names, err := w.sources(w.of[:n-1])
	if err != nil {
		return nil, err
	}
	metadata, err := w.of[n-1].all(maxMetadata)
	if err != nil {
		return nil, err
	}
	return plans.HuggingFace(sources, names, metadata, config)
}
