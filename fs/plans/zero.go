package plans

import (
	"cmp"
	"io"
	"slices"
	"sort"
	"strings"
	"unsafe"

	"ckptfs/formats"
	"ckptfs/formats/deepspeed"
	"ckptfs/formats/safetensors"
)

// ConsolidateZero plans one file of the model of a step that DeepSpeed's ZeRO wrote, in single precision:
//
//	out = get_fp32_state_dict_from_zero_checkpoint(folder, tag)
//	out = {k: (t.float() if t.is_floating_point() else t).clone() for k, t in out.items()}
//	metadata = {"format": "pt"}
//
// as zero_to_fp32.py --safe_serialization has it, which makes several files of more than 5 GB, and fails where
// parameters share their values. Here each name has them. names are those of the files, and files what these
// say.
func ConsolidateZero(files []*Source, names []string) (*Plan, error) {
	z, err := zeroOf(files, names)
	if err != nil {
		return nil, err
	}
	if err := z.params(); err != nil {
		return nil, err
	}
	for _, x := range z.models[0].Shared {
		if i, ok := z.at[x[1]]; ok {
			e := z.out[i]
			e.Name = x[0]
			z.set(e)
		}
	}
	if len(z.out) == 0 {
		return nil, none("there are no tensors")
	}
	return plan(z.out, []safetensors.Pair{{Key: "format", Value: "pt"}})
}

// zero is a step of ZeRO.
type zero struct {
	stage      int
	models     []*deepspeed.Model // by rank; of stages 1 and 2, one
	optimizers []*deepspeed.Optimizer
	modelAt    []int // which source each is
	optimAt    []int
	sources    []*Source

	out    []output
	at     map[string]int // in out, by name
	pieces int
}

// maxPieces bounds the parts of all tensors of a plan together.
const maxPieces = 1 << 20

// zeroOf puts the files of a step in the order of their ranks.
func zeroOf(files []*Source, names []string) (*zero, error) {
	z := &zero{at: map[string]int{}, sources: files}
	type ranked struct{ rank, src int }
	var models, optimizers []ranked
	for i, s := range files {
		f := s.DeepSpeed
		rank, ok := deepspeed.Rank(names[i])
		if !ok {
			return nil, none("%q is of a layout that is not known: of pipelines, experts or tensor parallelism",
				names[i])
		}
		if strings.HasSuffix(names[i], deepspeed.ModelSuffix) != (f.Model != nil) {
			return nil, none("%q says something else than its name", names[i])
		}
		if f.Model != nil {
			models = append(models, ranked{rank, i})
		} else {
			optimizers = append(optimizers, ranked{rank, i})
		}
	}
	if len(models) == 0 || len(optimizers) == 0 {
		return nil, none("files of model states or of optimizer states are missing")
	}
	byRank := func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) }
	slices.SortFunc(models, byRank)
	slices.SortFunc(optimizers, byRank)
	for i, x := range optimizers {
		o := files[x.src].DeepSpeed.Optimizer
		z.optimizers, z.optimAt = append(z.optimizers, o), append(z.optimAt, x.src)
		first := z.optimizers[0]
		if x.rank != i || o.Stage != first.Stage || o.Ranks != len(optimizers) ||
			len(o.Flat) != len(first.Flat) {
			return nil, none("%d of the %d files of optimizer states are there, or they are of several steps",
				len(optimizers), o.Ranks)
		}
	}
	z.stage = z.optimizers[0].Stage
	for i, x := range models {
		if z.stage < 3 && (len(models) > 1 || x.rank >= 0) ||
			z.stage == 3 && (len(models) != len(optimizers) || x.rank != i) {
			return nil, none("its %d files of model states are not those of a step of stage %d", len(models), z.stage)
		}
		z.models, z.modelAt = append(z.models, files[x.src].DeepSpeed.Model), append(z.modelAt, x.src)
	}
	return z, nil
}

// set has a name lead to a tensor, in place of another.
func (z *zero) set(e output) {
	if i, ok := z.at[e.Name]; ok {
		z.out[i] = e
		return
	}
	z.at[e.Name] = len(z.out)
	z.out = append(z.out, e)
}

// params makes the buffers, the frozen parameters, and those that are trained.
func (z *zero) params() error {
	m := z.models[0]
	for i := range m.Buffers {
		t := &m.Buffers[i]
		e := safetensors.Entry{Name: t.Name, DType: t.DType, Shape: t.Shape}
		if !convertible(t.DType, formats.F32) {
			op, err := taken(z.modelAt[0], z.sources[z.modelAt[0]], *t)
			if err != nil {
				return err
			}
			z.set(output{e, op})
			continue
		}
		e.DType = formats.F32
		j := &joined{}
		if err := z.add(j, z.modelAt[0], t, 0, t.NumElements()); err != nil {
			return err
		}
		z.set(output{e, j})
	}
	for i, p := range m.Frozen {
		if err := z.frozen(i, p.Param); err != nil {
			return err
		}
	}
	if z.stage == 3 {
		return z.interleaved()
	}
	return z.partitioned()
}

// frozen makes a parameter of which each rank has a fragment, or with stages 1 and 2 one has all.
func (z *zero) frozen(i int, p deepspeed.Param) error {
	j := &joined{}
	left := elements(p.Shape)
	for r, m := range z.models {
		if len(m.Frozen) <= i || m.Frozen[i].Name != p.Name {
			return none("ranks have other frozen parameters than the first")
		}
		t := &m.Frozen[i].Fragment
		n := min(left, t.NumElements())
		if err := z.add(j, z.modelAt[r], t, 0, n); err != nil {
			return err
		}
		left -= n
	}
	if left != 0 {
		return none("parts of %q are missing", p.Name)
	}
	z.set(weight(p, j))
	return nil
}

// partitioned makes the parameters of stages 1 and 2: each group lies in one vector, cut in equal parts.
func (z *zero) partitioned() error {
	groups := z.models[0].Groups
	first := z.optimizers[0]
	if len(groups) != len(first.Flat) || first.Paddings != nil && len(first.Paddings) != len(groups) {
		return none("the files of optimizer states have other groups than the model")
	}
	for g, group := range groups {
		var ends []int64 // of the ranks' parts in the vector
		total := int64(0)
		for _, o := range z.optimizers {
			total += o.Flat[g].NumElements()
			ends = append(ends, total)
		}
		at := int64(0)
		for k, p := range group {
			n := elements(p.Shape)
			if n > total-at {
				return none("%q lies beyond the end of its group", p.Name)
			}
			j := &joined{}
			err := z.cut(j, ends, at, at+n, func(r int) (int, *formats.Tensor) {
				return z.optimAt[r], &z.optimizers[r].Flat[g]
			})
			if err != nil {
				return err
			}
			z.set(weight(p, j))
			at += n
			if first.Paddings != nil {
				if len(first.Paddings[g]) != len(group) || first.Paddings[g][k] > total-at {
					return none("the elements behind %q are not those of its group", p.Name)
				}
				at += first.Paddings[g][k]
			}
		}
		// What is behind the last one aligns the vector.
		align := 2 * int64(len(z.optimizers))
		if up := func(n int64) int64 { return (n + align - 1) / align }; up(at) != up(total) {
			return none("a group has %d elements, and its parameters %d", total, at)
		}
	}
	return nil
}

// interleaved makes the parameters of stage 3: each is cut in equal parts, and a rank's vectors have its parts
// one behind the other, across groups.
func (z *zero) interleaved() error {
	first := z.optimizers[0].Flat
	var ends []int64 // of a rank's vectors, one behind the other
	total := int64(0)
	for g := range first {
		n := first[g].NumElements()
		for _, o := range z.optimizers {
			if o.Flat[g].NumElements() != n {
				return none("ranks have parts of different lengths")
			}
		}
		total += n
		ends = append(ends, total)
	}
	ranks := int64(len(z.optimizers))
	at := int64(0)
	for _, group := range z.models[0].Groups {
		for _, p := range group {
			left := elements(p.Shape)
			part := (left + ranks - 1) / ranks
			if part > total-at {
				return none("%q lies beyond the end of its group", p.Name)
			}
			j := &joined{}
			for r, o := range z.optimizers {
				err := z.cut(j, ends, at, at+min(part, left), func(g int) (int, *formats.Tensor) {
					return z.optimAt[r], &o.Flat[g]
				})
				if err != nil {
					return err
				}
				left -= min(part, left)
			}
			z.set(weight(p, j))
			at += part
		}
	}
	if at != total {
		return none("a rank has %d elements, and its parts of the parameters %d", total, at)
	}
	return nil
}

// weight is a parameter of which j is what it has.
func weight(p deepspeed.Param, j *joined) output {
	return output{safetensors.Entry{Name: p.Name, DType: formats.F32, Shape: p.Shape}, j}
}

// cut adds elements from one on to another of flat tensors that lie one behind the other and end at ends. of
// says in which source each is.
func (z *zero) cut(j *joined, ends []int64, from, to int64, of func(i int) (src int, t *formats.Tensor)) error {
	for from < to {
		i := sort.Search(len(ends), func(i int) bool { return ends[i] > from })
		src, t := of(i)
		n := min(to, ends[i]) - from
		if err := z.add(j, src, t, from-(ends[i]-t.NumElements()), n); err != nil {
			return err
		}
		from += n
	}
	return nil
}

// add adds n elements of a flat tensor from one on, in single precision.
func (z *zero) add(j *joined, src int, t *formats.Tensor, from, n int64) error {
	if n == 0 {
		return nil
	}
	if z.pieces++; z.pieces > maxPieces {
		return none("it is in more than %d parts", maxPieces)
	}
	if !t.Contiguous() || t.Region < 0 || !convertible(t.DType, formats.F32) && t.DType != formats.F32 {
		return none("a part is of type %s, or its elements do not lie one behind the other", t.DType)
	}
	base := z.sources[src].base(t) + from*int64(t.DType.Bits()/8)
	end := 4 * n
	if k := len(j.ends); k > 0 {
		end += j.ends[k-1]
	}
	j.ends = append(j.ends, end)
	var o op = &copied{src, base}
	if t.DType != formats.F32 {
		o = &cast{o, t.DType, formats.F32, asTorch}
	}
	j.ops = append(j.ops, o)
	return nil
}

// elements is the number of elements of a shape that does not overflow.
func elements(shape []int64) int64 { return (&formats.Tensor{Shape: shape}).NumElements() }

// joined is a tensor of parts, one behind the other.
type joined struct {
	ops  []op
	ends []int64 // in bytes
}

func (j *joined) read(src []io.ReaderAt, p []byte, off int64) error {
	for i := sort.Search(len(j.ends), func(i int) bool { return j.ends[i] > off }); len(p) > 0; i++ {
		from := off
		if i > 0 {
			from -= j.ends[i-1]
		}
		n := min(int64(len(p)), j.ends[i]-off)
		if err := j.ops[i].read(src, p[:n], from); err != nil {
			return err
		}
		p, off = p[n:], off+n
	}
	return nil
}

func (j *joined) memory() int64 {
	n := int64(unsafe.Sizeof(*j)) + 24*int64(cap(j.ends))
	for _, op := range j.ops {
		n += op.memory()
	}
	return n
}
