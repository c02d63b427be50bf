// Package virtual has the names that exist only in the mount: views, each beside the file that it is made of,
// and the virtual files below .ckptfs at the mount's root.
//
// # Views
//
// Beside a checkpoint X.pt below runs/ there is X.safetensors, as long as no file has that name, no program
// writes X.pt, and safetensors can express its tensors. A view's owner, times and permissions are its
// source's. A view is of one generation of its source's bytes. When these change, the name leads to another
// node, and a read through the old one fails with ESTALE. An open for writing makes a real file of the view's
// bytes, which takes its name. An unlinked view stays hidden: a flag in the source's record holds that. Of a
// source with several names it is a table, which is kept as long as the store is open (hiddenViews).
//
// # Virtual files
//
// They are not listed at the root, cannot be changed (EROFS), and a real .ckptfs in the tree comes before
// them.
//
//	.ckptfs/tensors/PATH/TENSOR.npy     one tensor of a file; see tensorTree
//	.ckptfs/query/NAME                  write a GRAPH.json, read the match; see queryRoot
//	.ckptfs/lcp/RUN/STEP                the match of a stored model; see lcpRoot
//	.ckptfs/best/RUN/METRIC.min         a symbolic link to a run's best step; .max likewise; see bestRoot
//	.ckptfs/latest/RUN                  a symbolic link to a run's last whole step; see latestRoot
//	.ckptfs/since/RUN/A/B.safetensors   what changed from one step to another; see sinceRoot
//	.ckptfs/artifacts/ID.safetensors    the tensors of an artifact id; see artifactDir
//	.ckptfs/make/WAY/PATH               what is computed of files; see makeRoot
//	.ckptfs/conflicts/PATH@WRITER       what others published by a name that another has; see conflictDir
//
// Each of these folders is a Kind: its folder finds what a name leads to (an entry). Only nodes that the
// kernel knows are kept. A name is looked up each time. It leads to the same node as before, as long as it
// means the same thing (entry.key).
//
// # Who sees what
//
// Of what is made up, a caller is shown what that caller could read by the path of its source, and nothing
// else: not its bytes, not its name, not that it is there. The function visible (visible.go) decides it.
//
//	a view                        may read the source
//	tensors/PATH                  may look up PATH; for what is in a file, may read it
//	artifacts/ID.safetensors      may read one of the files of the id, by the folders above it
//	best/RUN                      may look up runs/RUN
//	best/RUN/METRIC.min           may list runs/RUN and read the metrics of one step; of those steps, the best
//	latest/RUN                    may list runs/RUN
//	make/WAY/PATH                 may look up PATH, and read all that the file is computed of
//	since/RUN/A                   may list runs/RUN/A
//	since/RUN/A/B.safetensors     may read the files of both steps' tensors
//	lcp, query, conflicts         is the daemon's user, or root: these name the files of all
//	the list of ids               likewise
//
// To read a file by its path is to enter each folder above it, the mount's root included, and to read it, by
// the permissions of owner, group and others. Root passes. FUSE tells the user, the group and the thread of a
// caller. The other groups are read from /proc, while the thread waits for its answer. Where that cannot be
// done the caller is taken to be in none of them (tree.Asker).
//
// A view that is opened for writing becomes a file. So the caller has to be allowed to make a name in that
// folder, and, if that is sticky, to replace one of the source's owner (mayReplace).
//
// # Why the kernel's caches show nothing more
//
// The kernel shares its caches among all users. What may differ from one caller to another is therefore asked
// for each time:
//
//   - Names. All but the fixed ones, .ckptfs and the folders in it, have an entry timeout of 0, and so has
//     what is listed with its attributes. Whenever a path leads through such a name, the kernel asks again,
//     as the caller. If the answer is ENOENT, or another node, it drops what it had. It keeps no ENOENT of a
//     virtual name or of a view. Two callers who look up one name at once share one question, but the one
//     who did not ask then asks again.
//   - Names below make that everyone finds are brief: the folders of a path, and links to files that all may
//     read. Programs that list ask for these thousands of times. The kernel keeps them, with their
//     attributes, for one tick of its clock, 10 ms at most. Where a folder was moved meanwhile, a name in it
//     is looked for where its path leads to by then (makeTree.now). So what may be late by a tick is that a
//     folder or a link is gone, and the mode of a folder.
//   - Permissions. The kernel checks the mode of each node (default_permissions), and asks for it each time.
//     A folder has the mode of the folder of its sources, so that nobody gets further here than there. The
//     mode of a fixed folder is kept. It is a constant, or it is the root's, which is asked for again when
//     that changes (Restat); that of best, which is the mode of runs/, is not kept.
//   - Bytes. Pages are kept by node, and everyone who opens a node reads the same ones. A node is one
//     generation of the bytes of one source, also in the process that serves the mount next: it takes a node
//     over if that has the same names.Origin, and what has none that lasts not at all (Traits.Passing). Where
//     two callers have different sources by one name, they get two nodes. Links are not kept, and answers
//     are not read through the cache.
//   - Lists. No list of a folder is kept. An open folder has the names that its reader was shown.
//
// What is open stays open, as in any filesystem: a file, a folder, or the working directory.
package virtual

import (
	"context"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/locks"
	"ckptfs/fs/artifacts"
	"ckptfs/fs/content"
	"ckptfs/fs/inspect"
	"ckptfs/fs/models"
	"ckptfs/fs/names"
	"ckptfs/fs/plans"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
	"ckptfs/fs/virtual/patches"
)

// The locks of this package, in the order in which they may be taken. The leaves come after all others of fs.
type (
	queryLock struct{} // query.mu: one name of .ckptfs/query, held while its answer is found
	viewLock  struct{} // View.mu: the plan of a view; its source's File.mu comes after it
	leafLock  struct{} // hiddenViews.mu, queries.mu, setView.mu, tensorIndex.mu, tensorIndexes.mu
)

func (queryLock) Rank() (int, string) { return locks.Volume, "query.mu" }
func (viewLock) Rank() (int, string)  { return locks.Volume + 8, "View.mu" }
func (leafLock) Rank() (int, string)  { return locks.Volume + 940, "a leaf of fs/virtual" }

// Name is the directory of the virtual files.
const Name = tree.OwnName

// Options are what Virtual needs of its surroundings.
type Options struct {
	Names     *names.Names
	Files     *content.Files
	Steps     *steps.Steps
	Models    *models.Models
	Artifacts *artifacts.Artifacts
	NodeOf    func(inspect.File) *names.Node           // of a file that Models found
	Remove    func(dir *names.Node, name string) error // unlinks a file
	Report    func(level slog.Level, msg string, args ...any)
	// Losers are the versions that others published of names which another version has got, in any order;
	// nil: there are none.
	Losers func(context.Context) ([]Loser, error)
	// Since makes the patch from one step to another, by their paths.
	Since func(ctx context.Context, a, b string) (*inspect.Patch, error)
	Kinds []Kind // the folders in .ckptfs
	// IndexBytes bounds what is kept of files' tensors, in memory, and what queries hold; one file's, and one
	// query's, is kept whatever it takes.
	IndexBytes int64
	ReadOnly   bool
	Off        bool // there are neither views nor virtual files
}

// Virtual are the names that exist only in the mount.
type Virtual struct {
	o       Options
	owner   uint32 // the daemon's user, whose the store is
	hidden  hiddenViews
	queries queries
	tensors tensorIndexes
	factors *plans.Factors
	patches patches.Kept
	others  otherFiles

	converting chan struct{} // room for who makes a plan of a model's folder
}

// New makes the names that exist only in the mount.
func New(o Options) *Virtual {
	return &Virtual{
		o: o, owner: uint32(os.Geteuid()),
		tensors:    tensorIndexes{maxBytes: o.IndexBytes, lingers: time.Minute},
		factors:    plans.NewFactors(o.IndexBytes),
		others:     newOtherFiles(),
		converting: make(chan struct{}, 1),
	}
}

// Close releases the models that answers pinned.
func (v *Virtual) Close() {
	v.queries.drop()
	v.tensors.drop()
	v.patches.Close()
}

// Kind is a folder in .ckptfs.
type Kind struct {
	name string
	root func(v *Virtual) entry
}

// Name is the folder's.
func (k Kind) Name() string { return k.name }

// The folders that there are. To add one, write its folder, name it here, and hand it to New.
var (
	Artifacts = Kind{"artifacts", func(*Virtual) entry {
		return entry{dir: artifactDir{}, key: "artifacts", stat: owners(unix.S_IFDIR | 0o511)}
	}}
	Best      = Kind{"best", bestRoot{}.entry}
	Conflicts = Kind{"conflicts", conflictDir("").entry}
	Latest    = Kind{"latest", latestRoot{}.entry}
	LCP       = Kind{"lcp", lcpRoot{}.entry}
	Make      = Kind{"make", makeRoot{}.entry}
	Query     = Kind{"query", queryRoot{}.entry}
	Since     = Kind{"since", sinceRoot{}.entry}
	Tensors   = Kind{"tensors", func(v *Virtual) entry {
		root := v.o.Names.Root()
		root.Pin()
		return entry{dir: tensorTree{root}, key: "tensors", src: root}
	}}
)

// kindsFolder is .ckptfs.
type kindsFolder struct{}

func (kindsFolder) lookup(_ context.Context, v *Virtual, _ *tree.Asker, name string) (entry, error) {
	for _, k := range v.o.Kinds {
		if k.name == name {
			return k.root(v), nil
		}
	}
	return entry{}, unix.ENOENT
}

func (kindsFolder) list(v *Virtual, _ *tree.Asker) (out []tree.DirEntry, err error) {
	for _, k := range v.o.Kinds {
		out = append(out, tree.DirEntry{Name: k.name, Mode: unix.S_IFDIR})
	}
	return out, nil
}

// Reserved reports whether dir/name is where the virtual files are, unless something real is there.
func (v *Virtual) Reserved(dir *names.Node, name string) bool {
	return dir == v.o.Names.Root() && name == Name && !v.o.Off
}

// Root is the node of Name at the root, with one reference more.
func (v *Virtual) Root() *names.Node {
	return v.node(v.o.Names.Root(), Name, entry{dir: kindsFolder{}, key: Name})
}

// node returns the node of w by the name dir/name, with one reference more. It takes w.src's reference.
func (v *Virtual) node(dir *names.Node, name string, w entry) *names.Node {
	fixed := dir.Synth() == nil || dir.Synth().Key() == Name
	s := &synthetic{w, v, w.mode(), fixed}
	return v.o.Names.Synthesise(dir, name, names.InoOf(dir, name), w.mode(), s)
}

// Restat makes the kernel ask again for the attributes of fixed nodes, which are made of the root's.
func (v *Virtual) Restat() {
	for _, id := range v.o.Names.FixedIDs() {
		v.o.Files.Kernel().InvalidateData(id, -1, 0)
	}
}
