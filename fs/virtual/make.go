package virtual

import (
	"context"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/formats"
	"ckptfs/fs/names"
	"ckptfs/fs/plans"
	"ckptfs/fs/tree"
	"ckptfs/fs/virtual/ways"
)

// The folder .ckptfs/make has files that nobody saved, computed of those that are stored: package plans says
// what each is, and package ways what its path means. This is how the folders show the tree.
//
// # Of one file
//
// Below cast and shard the tree is shown again (makeTree): a folder; a symbolic link; a file that can be
// made, by the name of the file, or the view, that it is made of; and what is no safetensors file, as a link
// to itself, so that a folder has what belongs to its models. A safetensors file that cannot be made is not
// there. The name of one may be that of a link to a file in the tree: then it is made of that file, with what
// lies beside the link.
//
// # Of a folder
//
// Below consolidated the tree is shown again, and a folder that torch.distributed.checkpoint or DeepSpeed's
// ZeRO wrote has model.safetensors instead of its files.
//
// Below hf so has a folder that Megatron-LM wrote (hfFile).
//
// Below sharded_state the tree is shown again, and a folder of a model has the files of all ranks instead of
// its weights (stateFile). Below megatron it has folders with one file of each rank (megatronFile).
//
// Below gguf are the folders of the tree. Beside each that is of a model which can be converted is a file, by
// the folder's name and .gguf (ggufFile).
//
// # Of several files
//
// Below soup the tree is shown again in the same way, but each file that one can be made of is a folder
// (makeOf). In it are +, where the tree is shown again for the next file, and the file that is made of those
// that the path has so far. + is not listed, so that who walks through all folders comes to an end. Below
// merge an adapter is such a folder, and what + leads to is shown as below cast.
//
// # What is not there
//
// Why a name is not there is said by a text called NAME.why, which is not listed.
//
// A made file has the permissions and the times of its sources. It is shown to who may read all of them.
const readmeFile = "README"

// making says what is made. It is comparable.
type making struct {
	kind        makeKind
	to          formats.DType // of a cast, or of a GGUF file
	rank, ranks int           // of a shard, a state, or a Megatron
	number      int           // of a state: which of a rank's files; of a Megatron: what divides its rows
	before      string        // the files that the path has so far: encoded by and
	weight      string        // of a sum: the next file's; of an adapter: its scale; of a slerp: the way
	part        bool          // of a merge: the file is one of several of its model
	folder      string        // of a GGUF file: the path of its model's folder
	templates   bool          // there is a folder of chat templates in it
}

type makeKind byte

const (
	makeCast makeKind = iota + 1
	makeShard
	makeMean
	makeSum
	makeSlerp
	makeAdapter  // the adapter is looked for
	makeMerge    // the base is
	makeOne      // one file of a folder's
	makeZero     // of one whose files are DeepSpeed's
	makeGGUF     // a model as llama.cpp converts it
	makeState    // a model as a rank of vLLM loads it
	makeMegatron // a model as a rank of Megatron-LM loads it
	makeHF       // a model of Megatron-LM as transformers loads it
	makeHFRanks  // one of which each rank has a file
)

// plan makes a plan of these sources, which have these names in their folders.
func (m making) plan(
	v *Virtual, of []*plans.Source, names []string, side []byte,
) (*plans.Plan, error) {
	switch m.kind {
	case makeCast:
		return plans.Cast(of[0], m.to)
	case makeShard:
		return plans.Shard(of[0], side, m.rank, m.ranks)
	case makeMean:
		return plans.Mean(of)
	case makeSum:
		var weights []float64
		for _, x := range m.operands() {
			w, _ := ways.Weight(x.Weight)
			weights = append(weights, w)
		}
		return plans.Sum(of, weights)
	case makeSlerp:
		t, _ := ways.Weight(m.operands()[0].Weight)
		return plans.Slerp(of[0], of[1], t)
	case makeOne:
		return plans.Consolidate(of, names, side)
	case makeState:
		return plans.State(of, side, m.rank, m.ranks, m.number)
	case makeMegatron:
		return plans.Megatron(of, side, m.rank, m.ranks, int64(m.number))
	case makeZero:
		return plans.ConsolidateZero(of, names)
	case makeMerge:
		w, _ := ways.Weight(m.operands()[0].Weight)
		return plans.Merge(of[0], of[1], side, w, m.part, v.factors)
	}
	return nil, fmt.Errorf("%w: nothing is made so", plans.ErrNone)
}

// beside is the name of a file in a source's folder that says how the source is used; "": there is none.
func (m making) beside() string {
	switch m.kind {
	case makeShard:
		return "config.json"
	case makeMerge:
		return "adapter_config.json" // beside the adapter
	}
	return ""
}

// several reports whether a file of the tree is a folder for one of several files; name is that of the file
// in it that is made of those that a path has, "" if there is none.
func (m making) several() (name string, is bool) {
	switch m.kind {
	case makeMean, makeSum, makeSlerp:
		return "soup.safetensors", true
	case makeAdapter:
		return "", true
	}
	return "", false
}

// and is m with one file more.
func (m making) and(p string) making {
	m.before, m.weight = ways.And(m.before, m.weight, p), ""
	return m
}

func (m making) operands() []ways.Operand { return ways.Operands(m.before) }

// makeRoot is .ckptfs/make, or a folder in it that has nothing of the tree.
type makeRoot struct {
	at  string // below .ckptfs/make
	how making
}

func (d makeRoot) entry(*Virtual) entry { return entry{dir: d, key: d, brief: true} }

func (d makeRoot) lookup(ctx context.Context, v *Virtual, c *tree.Asker, name string) (entry, error) {
	at := path.Join(d.at, name)
	folder := func(how making) (entry, error) { return makeRoot{at, how}.entry(v), nil }
	mirror := func(how making) (entry, error) {
		root := v.o.Names.Root()
		root.Pin()
		return makeTree{how, at, "", root}.entry(), nil
	}
	switch {
	case at == readmeFile:
		return entry{key: readmeFile, data: []byte(ways.Readme)}, nil
	case at == "cast", at == "gguf", at == "megatron", at == "shard", at == "sharded_state", at == "soup":
		return folder(making{})
	case at == "merge":
		return folder(making{kind: makeAdapter})
	case at == "consolidated":
		return mirror(making{kind: makeOne})
	case at == "hf":
		return mirror(making{kind: makeHF})
	case at == "soup/mean":
		return mirror(making{kind: makeMean})
	case at == "soup/sum":
		return folder(making{kind: makeSum})
	case at == "soup/slerp":
		return folder(making{kind: makeSlerp})
	case d.how.kind == makeSum, d.how.kind == makeSlerp, d.how.kind == makeAdapter:
		if _, ok := ways.Weight(name); ok {
			d.how.weight = name
			return mirror(d.how)
		}
	case d.at == "cast":
		if to, ok := ways.Types[name]; ok {
			return mirror(making{kind: makeCast, to: to})
		}
	case d.at == "gguf":
		if to, ok := ways.Types[name]; ok {
			return mirror(making{kind: makeGGUF, to: to})
		}
	case d.at == "shard":
		if k, ok := ways.Numbered(name, "tp="); ok && k > 1 && k <= plans.MaxRanks {
			return folder(making{kind: makeShard, ranks: k})
		}
	case d.at == "sharded_state":
		if k, ok := ways.Numbered(name, "tp="); ok && k > 0 && k <= plans.MaxRanks {
			return mirror(making{kind: makeState, ranks: k})
		}
	case d.at == "megatron":
		if k, n, ok := ways.MegatronRanks(name); ok {
			return mirror(making{kind: makeMegatron, ranks: k, number: n})
		}
	case d.how.kind == makeShard:
		if r, ok := ways.Numbered(name, "rank-"); ok && r < d.how.ranks {
			d.how.rank = r
			return mirror(d.how)
		}
	}
	if stem, ok := strings.CutSuffix(name, ways.WhySuffix); ok && d.takes() != "" {
		text := fmt.Sprintf("%s is there.\n", stem)
		if e, err := d.lookup(ctx, v, c, stem); err != nil {
			text = fmt.Sprintf("%s is none of %s.\n", stem, d.takes())
		} else {
			e.drop()
		}
		return entry{key: makeWhy(text), data: []byte(text)}, nil
	}
	return entry{}, unix.ENOENT
}

// names are those that the folder has, unless they are numbers, of which there are many.
func (d makeRoot) names() []string {
	switch d.at {
	case "":
		return []string{"cast", "consolidated", "gguf", "hf", "megatron", "merge", "shard", "sharded_state",
			"soup"}
	case "cast", "gguf":
		return []string{"bf16", "f16", "f32"}
	case "soup":
		return []string{"mean", "slerp", "sum"}
	}
	return nil
}

// takes says which names there are in the folder; "": any path.
func (d makeRoot) takes() string {
	if all := d.names(); all != nil {
		last := len(all) - 1
		return strings.Join(all[:last], ", ") + " and " + all[last]
	}
	switch {
	case d.at == "shard":
		return fmt.Sprintf("tp=2 to tp=%d", plans.MaxRanks)
	case d.at == "sharded_state":
		return fmt.Sprintf("tp=1 to tp=%d", plans.MaxRanks)
	case d.at == "megatron":
		return fmt.Sprintf("tp=1 to tp=%d, nor that with ,vocab=2 to ,vocab=%d", plans.MaxRanks, plans.MaxVocab)
	case d.how.kind == makeShard:
		return fmt.Sprintf("rank-0 to rank-%d", d.how.ranks-1)
	case d.how.kind == makeSum, d.how.kind == makeSlerp, d.how.kind == makeAdapter:
		return "the numbers that a file may be weighed by, such as 0.5, -1 or 1e-3"
	}
	return ""
}

// list lists one of the numbers that there are, where there are many: who walks through all folders is to
// come to an end.
func (d makeRoot) list(*Virtual, *tree.Asker) (out []tree.DirEntry, err error) {
	names := d.names()
	switch {
	case d.at == "":
		out = append(out, tree.DirEntry{Name: readmeFile, Mode: unix.S_IFREG})
	case d.at == "merge":
		names = []string{"1"}
	case d.at == "megatron", d.at == "shard", d.at == "sharded_state":
		names = []string{"tp=2"}
	case d.how.kind == makeShard:
		for r := range d.how.ranks {
			names = append(names, fmt.Sprintf("rank-%d", r))
		}
	}
	for _, name := range names {
		out = append(out, tree.DirEntry{Name: name, Mode: unix.S_IFDIR})
	}
	return out, nil
}

// entry is the file's entry.
func (w *computed) entry(s sight) entry {
	return entry{key: w.key(), src: w.of[0].n, made: w, sight: s, stat: w.stat}
}

// makeOf is a folder that stands for a file which another is made of, among several.
type makeOf struct {
	how making // the file is its last one
	at  string // the path of this folder below .ckptfs/make
	src *names.Node
}

func (d makeOf) entry() entry { return entry{dir: d, key: d, src: d.src, sight: inPlace} }

func (d makeOf) lookup(_ context.Context, v *Virtual, c *tree.Asker, name string) (entry, error) {
	return madeNames(d.file).lookup(v, c, name)
}

// next is where the next file is looked for.
func (d makeOf) next(v *Virtual) (entry, error) {
	most := plans.MaxSources
	if d.how.kind == makeSlerp {
		most = 2
	}
	if len(d.how.operands()) >= most {
		return entry{}, fmt.Errorf("%w: of more than %d files", plans.ErrNone, most)
	}
	e := makeRoot{path.Join(d.at, ways.Next), d.how}
	switch d.how.kind {
	case makeSum:
		return e.entry(v), nil
	case makeAdapter:
		e.how.kind = makeMerge
	}
	root := v.o.Names.Root()
	root.Pin()
	return makeTree{e.how, e.at, "", root}.entry(), nil
}

// file is the file that is made of those that the path has, or where the next one is looked for.
func (d makeOf) file(v *Virtual, c *tree.Asker, name string) (entry, error) {
	if name == ways.Next {
		return d.next(v)
	}
	if soup, _ := d.how.several(); name != soup {
		return entry{}, errNoFile
	}
	paths := d.how.operands()
	if len(paths) < 2 {
		return entry{}, fmt.Errorf("%w: of one file; the next one follows %q", plans.ErrNone, ways.Next+"/")
	}
	var of []*operand
	for _, x := range paths {
		o, err := v.operandFor(c, x.Path)
		if err != nil {
			for _, o := range of {
				o.drop()
			}
			return entry{}, err
		}
		of = append(of, o)
	}
	w, err := v.newComputed(d.how, of, nil)
	if err != nil {
		return entry{}, err
	}
	return w.entry(byPath), nil
}

func (d makeOf) list(v *Virtual, c *tree.Asker) (out []tree.DirEntry, err error) {
	name, _ := d.how.several()
	w, err := d.file(v, c, name)
	if err == nil {
		w.drop()
		out = append(out, tree.DirEntry{Name: name, Mode: unix.S_IFREG})
	}
	return out, nil
}

// operandFor is the file that a path leads to now, if c may read it by that.
func (v *Virtual) operandFor(c *tree.Asker, p string) (*operand, error) {
	o, err := v.operandBy(c, p, v.operandIn)
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", err, p)
	}
	return o, nil
}

// operandBy is what find finds by a path now.
func (v *Virtual) operandBy(
	c *tree.Asker, p string, find func(*tree.Asker, *names.Node, string) (*operand, error),
) (*operand, error) {
	dir, err := v.o.Names.Resolve(path.Dir(p))
	if err != nil {
		return nil, errNoFile
	}
	defer dir.Unpin()
	return find(c, dir, path.Base(p))
}
