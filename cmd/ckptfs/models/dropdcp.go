package models

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cmd/ckptfs/rundir"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/formats"
	"ckptfs/formats/dcp"
	"ckptfs/formats/detect"
	fssteps "ckptfs/fs/steps"
	"ckptfs/fs/view"
)

// distributed is a folder that torch.distributed.checkpoint wrote, or DeepSpeed's ZeRO.
type distributed struct {
	rel   string // relative to the run
	items map[string][]dcp.Item
	strip string        // begins all names, and no name of what is computed of it
	parts []os.FileInfo // the files that are removed, in the order of names; nil: it is not there
	names []string
	said  string // the name of the file that says what the others have
	stays bool   // that is not removed
	meta  os.FileInfo
	size  int64
}

// maxObject is how many bytes the pickle of an object may have that is lost, as numbers and settings are. A
// larger one may have a model in it.
const maxObject = 1 << 20

// distributed makes a file of the weights of a folder that is one checkpoint and removes its files; or it
// removes those that have nothing but optimizer state. An error is that of the run: of a folder it is noted.
// remote are the names of files whose bytes are elsewhere: a folder that has one stays as it is.
func (d *dropper) distributed(ctx context.Context, root *os.Root, step, rel string,
	remote map[string]bool) error {
	full := path.Join(d.run, rel)
	x, err := openDistributed(root, rel)
	if err != nil {
		d.skip(full, err.Error())
		return ctx.Err()
	}
	if slices.ContainsFunc(x.names, func(name string) bool { return remote[name] }) {
		return nil
	}
	out := dropped{File: full, DryRun: d.dry, Size: x.size}
	kept := map[string][]int64{} // shapes by name
	tensors := map[string]bool{}
	var big *dcp.Item
	for _, in := range x.items {
		for i := range in {
			if !in[i].Tensor() {
				if in[i].Len > maxObject && !isOptimizerState(in[i].Name) && big == nil {
					big = &in[i]
				}
				continue
			}
			tensors[in[i].Name] = true
			name := strings.TrimPrefix(in[i].Name, x.strip)
			if !isOptimizerState(in[i].Name) && !isOptimizerState(name) {
				kept[name] = in[i].Shape
			}
		}
	}
	out.Kept, out.Dropped = len(kept), len(tensors)-len(kept)
	if out.Dropped == 0 {
		return nil
	}
	if big != nil {
		d.skip(full, fmt.Sprintf("its object %q, of %s, would be lost: it may have weights", big.Name, text.Bytes(big.Len)))
		return nil
	}
	var weights string
	if len(kept) > 0 {
		weights = path.Join(rel, fssteps.DistributedWeights)
		out.Weights = path.Join(d.run, weights)
	}
	return d.note(ctx, &out, d.dropDistributed(ctx, root, step, x, weights, kept, &out))
}

// openDistributed reads what a folder is said to hold.
func openDistributed(root *os.Root, rel string) (*distributed, error) {
	x := &distributed{rel: rel, said: dcp.Metadata}
	f, err := openIn(root, path.Join(rel, dcp.Metadata))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if x.meta, err = f.Stat(); err != nil {
		return nil, err
	}
	if !x.meta.Mode().IsRegular() || x.meta.Size() > dcp.MaxMetadata {
		return nil, fmt.Errorf("its .metadata is no file of at most %s", text.Bytes(dcp.MaxMetadata))
	}
	p, err := io.ReadAll(io.LimitReader(f, dcp.MaxMetadata+1))
	if err != nil {
		return nil, err
	}
	if x.items, err = dcp.Parse(p); err != nil {
		return nil, fmt.Errorf("its .metadata: %w", err)
	}
	x.strip = dcp.OnlyKey(dcp.Paths(p), x.items)
	x.size = x.meta.Size()
	for name := range x.items {
		if name != path.Base(name) || name == "." || name == ".." {
			return nil, fmt.Errorf("its .metadata names a file that is not in the folder: %q", name)
		}
		x.names = append(x.names, name)
	}
	slices.Sort(x.names)
	for _, name := range x.names {
		st, err := root.Lstat(path.Join(rel, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			st = nil
		case err != nil:
			return nil, err
		case !st.Mode().IsRegular():
			return nil, fmt.Errorf("%q is no file", name)
		case !asOpen(st, x.meta):
			return nil, errNotAsOpen(name, dcp.Metadata)
		default:
			x.size += st.Size()
		}
		x.parts = append(x.parts, st)
	}
	return x, nil
}

func errNotAsOpen(name, than string) error {
	return fmt.Errorf("%q is of another owner than %s, or fewer users may read it", name, than)
}

// asOpen reports whether a part has the owner and the group of the file that says what it has, and all who
// may read that may read the part: the weights are as open as that file.
func asOpen(part, meta os.FileInfo) bool {
	p, m := ownerOf(part), ownerOf(meta)
	return p.Uid == m.Uid && p.Gid == m.Gid && meta.Mode().Perm()&^part.Mode().Perm()&0o444 == 0
}

// dropDistributed makes the file of weights, unless that is "", and removes the files of the checkpoint. What
// an interruption leaves is no torn step, and the next command removes it.
func (d *dropper) dropDistributed(ctx context.Context, root *os.Root, step string, x *distributed,
	weights string, kept map[string][]int64, out *dropped) error {
	if weights == "" {
		if d.dry {
			return nil
		}
		if err := x.same(root); err != nil {
			return err
		}
		if x.rel != step && x.alone(root) {
			return rundir.RemoveStep(root, x.rel)
		}
		// What an interruption leaves are parts that nothing names.
		if err := root.Remove(path.Join(x.rel, dcp.Metadata)); err != nil {
			return err
		}
		return x.removeParts(root)
	}
	if slices.Contains(x.parts, nil) {
		if err := holds(root, weights, x.meta, kept); err != nil {
			return fmt.Errorf("not all files are there that its .metadata names, and %s has not its weights: %w", path.Base(weights), err)
		}
		if d.dry {
			return nil
		}
		if err := x.same(root); err != nil {
			return err
		}
		return x.remove(root)
	}
	src, plan, err := d.consolidated(ctx, x, kept)
	if err != nil {
		return err
	}
	defer src.Close()
	return d.writeFirst(ctx, root, x, weights, src, plan, out)
}

// writeFirst makes the file of weights, durable, and then removes the files of the checkpoint.
func (d *dropper) writeFirst(ctx context.Context, root *os.Root, x *distributed, weights string, src *os.File,
	plan *view.View, out *dropped) error {
	if out.NewSize = plan.Size(); d.dry {
		return canHave(ctx, root, weights, src, plan)
	}
	made, err := writeIn(ctx, root, weights, src, x.meta, plan, nil)
	if err != nil {
		return err
	}
	if err := x.same(root); err != nil {
		if made && !errors.Is(err, fs.ErrNotExist) { // else another command may be removing them
			err = errors.Join(err, root.Remove(weights))
		}
		return err
	}
	return x.remove(root)
}

// remove removes the files, and that which says what they have last, unless it stays.
func (x *distributed) remove(root *os.Root) error {
	if err := x.removeParts(root); err != nil || x.stays {
		return err
	}
	return root.Remove(path.Join(x.rel, x.said))
}

func (x *distributed) removeParts(root *os.Root) error {
	for i, st := range x.parts {
		if st == nil {
			continue
		}
		if err := root.Remove(path.Join(x.rel, x.names[i])); err != nil {
			return err
		}
	}
	return nil
}

// alone reports whether the folder has nothing but these files.
func (x *distributed) alone(root *os.Root) bool {
	f, err := root.Open(x.rel)
	if err != nil {
		return false
	}
	defer f.Close()
	names, err := f.Readdirnames(len(x.names) + 2)
	return (err == nil || err == io.EOF) && !slices.ContainsFunc(names, func(name string) bool {
		return name != dcp.Metadata && !slices.Contains(x.names, name)
	})
}

// same is an error if a file of the folder was written to, or replaced.
func (x *distributed) same(root *os.Root) error {
	err := unchanged(root, path.Join(x.rel, x.said), x.meta)
	for i := 0; i < len(x.names) && err == nil; i++ {
		if x.parts[i] != nil {
			err = unchanged(root, path.Join(x.rel, x.names[i]), x.parts[i])
		}
	}
	return err
}

// consolidated opens what the mount computes of a folder (docs/make.md), and plans the file of those of its
// tensors that are kept. It opens it as the owner of the files, who gets what is written, and who may put
// other files in the place of these at any time.
func (d *dropper) consolidated(ctx context.Context, x *distributed, kept map[string][]int64) (
	*os.File, *view.View, error) {
	at := path.Join(".ckptfs/make/consolidated", d.run, x.rel, "model.safetensors")
	// The owner may not come as far as the mount by a path.
	dir, err := unix.Open(d.mountpoint, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(dir)
	var f *os.File
	var why []byte
	owner := ownerOf(x.meta)
	err = asUser(owner.Uid, owner.Gid, func() (err error) {
		if f, err = openAt(dir, at); err == nil {
			return nil
		}
		if said, err := openAt(dir, at+".why"); err == nil {
			why, _ = io.ReadAll(io.LimitReader(said, 4<<10))
			said.Close()
		}
		return err
	})
	if err != nil && len(why) == 0 {
		return nil, nil, fmt.Errorf("its weights cannot be computed, since its owner does not find %s in the mount: %w", at, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("its weights cannot be computed: %s", strings.TrimSpace(string(why)))
	}
	// A store whose mount computes nothing may have files of these names, with anything in them.
	e, err := d.c.Entry(ctx, at)
	if err == nil && (e.State != "" || e.Mode&unix.S_IFMT != unix.S_IFREG) {
		err = fmt.Errorf("its weights cannot be computed: the store itself has a file %s", at)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	plan, err := planKept(f, kept)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, plan, nil
}

// openAt opens a file of a folder for reading.
func openAt(dir int, name string) (*os.File, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// planKept is the file of those tensors of a computed one that are kept. All have to be in it.
func planKept(f *os.File, kept map[string][]int64) (*view.View, error) {
	_, l, err := layoutOf(f)
	if err != nil {
		return nil, err
	}
	tensors := slices.DeleteFunc(l.Tensors, func(t formats.Tensor) bool { _, is := kept[t.Name]; return !is })
	if err := areThose(tensors, kept); err != nil {
		return nil, fmt.Errorf("what is computed of it has %w", err)
	}
	return view.Safetensors(l.Regions, tensors)
}

// holds is an error unless a file of weights has the tensors that are kept, and no others, and was made of
// the files that meta is of, whose time it has then: a folder may have been saved to again.
func holds(root *os.Root, weights string, meta os.FileInfo, kept map[string][]int64) error {
	f, err := openIn(root, weights)
	if err != nil {
		return err
	}
	defer f.Close()
	st, l, err := layoutOf(f)
	if err != nil {
		return err
	}
	if !st.ModTime().Equal(meta.ModTime()) {
		return fmt.Errorf("it is of another time than %s", meta.Name())
	}
	return areThose(l.Tensors, kept)
}

// layoutOf is what is known of a file that is open.
func layoutOf(f *os.File) (os.FileInfo, *formats.Layout, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	l, err := detect.Detect(f, st.Size())
	return st, l, err
}

// areThose is an error unless tensors are those that are kept, by their names and shapes.
func areThose(tensors []formats.Tensor, kept map[string][]int64) error {
	if len(tensors) != len(kept) {
		return fmt.Errorf("%d tensors, and its files name %d besides optimizer state", len(tensors), len(kept))
	}
	for i := range tensors {
		if shape, is := kept[tensors[i].Name]; !is || !slices.Equal(shape, tensors[i].Shape) {
			return fmt.Errorf("a tensor %q, which its files do not name so", tensors[i].Name)
		}
	}
	return nil
}
