package virtual

import (
	"fmt"
	"path"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"ckptfs/fs/names"
	"ckptfs/fs/plans"
	"ckptfs/fs/plans/llamacpp"
	"ckptfs/fs/tree"
	"ckptfs/fs/virtual/ways"
)

// modelConfig is the file of a model's folder that says what the model is.
const modelConfig = "config.json"

// stateFile is a name of the folder of a model in vLLM's format: a file of a rank's tensors, or a link to a
// file of the folder itself; the model's own weights are not there.
func (d makeTree) stateFile(v *Virtual, c *tree.Asker, name string) (entry, error) {
	at := ways.StatePart.FindStringSubmatch(name)
	if at == nil {
		return d.besideWeights(v, c, name)
	}
	how := d.how
	how.rank, _ = strconv.Atoi(at[1])
	how.number, _ = strconv.Atoi(at[2])
	return d.ofModel(v, c, how)
}

// besideWeights is a link to a file of a model's folder that has no weights.
func (d makeTree) besideWeights(v *Virtual, c *tree.Asker, name string) (entry, error) {
	if slices.Contains([]string{".safetensors", ".bin", ".pt"}, path.Ext(name)) {
		return entry{}, errNoFile
	}
	o, err := v.operandIn(c, d.src, name)
	if err != nil {
		return entry{}, err
	}
	return d.itself(o, name), nil
}

// ofModel is a file that is made of the weights in the folder of a model, and of its config. Who sees it may
// list the folder and read all of these, by their paths.
func (d makeTree) ofModel(v *Virtual, c *tree.Asker, how making) (entry, error) {
	if !v.visible(c, byPath, d.src) {
		return entry{}, errNoFile
	}
	of, side, err := v.weightFiles(c, d.src, how.kind == makeState)
	if err != nil {
		return entry{}, err
	}
	w, err := v.newComputed(how, of, side)
	if err != nil {
		return entry{}, err
	}
	return w.entry(byPath), nil
}

// weightFiles are the files of weights in a model's folder, and its config.
func (v *Virtual) weightFiles(
	c *tree.Asker, dir *names.Node, vllm bool,
) (of []*operand, side *operand, err error) {
	real, err := dir.ListQuietly()
	if err != nil {
		return nil, nil, err
	}
	var weights []string
	for _, e := range append(real, v.Views(c, dir, real)...) {
		if vllm && plans.StateBeside(e.Name) {
			return nil, nil, fmt.Errorf("%w: it is not known what vLLM makes of a model with %s", plans.ErrNone,
				e.Name)
		}
		if e.Mode == unix.S_IFDIR || path.Ext(e.Name) != ".safetensors" ||
			e.View && !llamacpp.IsPart(e.Name) {
			continue
		}
		if !llamacpp.IsPart(e.Name) {
			return nil, nil, fmt.Errorf("%w: %s is beside the files called model….safetensors", plans.ErrNone, e.Name)
		}
		weights = append(weights, e.Name)
	}
	if err := ways.CountParts(weights); err != nil {
		return nil, nil, err
	}
	slices.Sort(weights)
	seen := func(name string) (*operand, error) { return v.operandIn(c, dir, name) }
	if side, err = seen(modelConfig); err == errNoFile {
		err = fmt.Errorf("%w: the folder has no %s", plans.ErrNone, modelConfig)
	}
	if err != nil {
		return nil, nil, err
	}
	if of, err = operandsBy(weights, seen); err != nil {
		side.drop()
		return nil, nil, err
	}
	return of, side, nil
}

// listState lists the files of all ranks, of which each has as many as the first.
func (d makeTree) listState(v *Virtual, c *tree.Asker) (out []tree.DirEntry) {
	w, err := d.stateFile(v, c, ways.StateName(0, 0))
	if err != nil {
		return nil
	}
	defer w.drop()
	p, err := w.made.planNow()
	if err != nil {
		return nil
	}
	for part := range min(p.Parts, ways.MaxStateParts) {
		for rank := range d.how.ranks {
			out = append(out, tree.DirEntry{Name: ways.StateName(rank, part), Mode: unix.S_IFREG})
		}
	}
	return out
}
