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
//	.ckptfs/artifacts/ID.safetensors    the tensors of an artifact id; see artifactDir
//
// Each of these folders is a Kind: its folder finds what a name leads to (an entry). Only nodes that the
// kernel knows are kept. A name is looked up each time. It leads to the same node as before, as long as it
// means the same thing (entry.key).
//
// # Permissions
//
// The kernel checks permissions by the mode of a node, so the stat of an entry is its policy.
//
//   - What is made of one file has that file's permissions, without those to write.
//   - A file that is shown outside of its folder also needs the permissions of the folders above it
//     (statReachable).
//   - What names models is for the owner of the mount's root (ownersOnly).
//   - Only that owner may list the ids of artifacts (statArtifacts).
package virtual

import (
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/locks"
	"ckptfs/fs/artifacts"
	"ckptfs/fs/content"
	"ckptfs/fs/inspect"
	"ckptfs/fs/models"
	"ckptfs/fs/names"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
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
const Name = ".ckptfs"

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
	Kinds     []Kind // the folders in .ckptfs
	// IndexBytes bounds what is kept of files' tensors, in memory; one file's is kept whatever it takes.
	IndexBytes int64
	ReadOnly   bool
	Off        bool // there are neither views nor virtual files
}

// Virtual are the names that exist only in the mount.
type Virtual struct {
	o       Options
	hidden  hiddenViews
	queries queries
	tensors tensorIndexes
}

// New makes the names that exist only in the mount.
func New(o Options) *Virtual {
	return &Virtual{o: o, tensors: tensorIndexes{maxBytes: o.IndexBytes, lingers: time.Minute}}
}

// Close releases the models that answers pinned.
func (v *Virtual) Close() {
	v.queries.drop()
	v.tensors.drop()
}

// Kind is a folder in .ckptfs.
type Kind struct {
	name string
	root func(v *Virtual) entry
}

// The folders that there are. To add one, write its folder, name it here, and hand it to New.
var (
	Artifacts = Kind{"artifacts", func(*Virtual) entry {
		return entry{dir: artifactDir{}, key: "artifacts", stat: statArtifacts}
	}}
	Best    = Kind{"best", bestRoot{}.entry}
	LCP     = Kind{"lcp", lcpRoot{}.entry}
	Query   = Kind{"query", queryRoot{}.entry}
	Tensors = Kind{"tensors", func(*Virtual) entry { return entry{dir: tensorRoot{}, key: "tensors"} }}
)

// kindsFolder is .ckptfs.
type kindsFolder struct{}

func (kindsFolder) lookup(v *Virtual, name string) (entry, error) {
	for _, k := range v.o.Kinds {
		if k.name == name {
			return k.root(v), nil
		}
	}
	return entry{}, unix.ENOENT
}

func (kindsFolder) list(v *Virtual) (out []tree.DirEntry, err error) {
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
		v.o.Files.Kernel.InvalidateData(id, -1, 0)
	}
}
