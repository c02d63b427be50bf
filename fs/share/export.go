package share

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/local"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/writer"
	"ckptfs/fs/control"
	"ckptfs/fs/share/shared"
	"ckptfs/fs/steps"
)

// Export publishes what lies at a path, as the remote has it, once more: as the run of a name, in the head of
// @exports, which is all that a mirror over plain HTTP shows. serving: all that it needs is stored alone, in
// objects of its own, in the order in which it is read. What was exported under the name before goes.
func (s *Share) Export(ctx context.Context, name, at string, serving bool) (*control.Exported, error) {
	at, err := shared.Path("export", at)
	run := steps.Dir + "/" + name
	switch {
	case err != nil:
		return nil, err
	case strings.Contains(name, "/") || strings.HasPrefix(name, ".") || record.CheckPath(run) != nil:
		return nil, &fs.PathError{Op: "export", Path: name, Err: control.Invalid("it is the name of a run, without a slash")}
	case shared.Step(at) == "":
		return nil, &fs.PathError{Op: "export", Path: at, Err: control.Invalid("a run, or what one holds, is exported")}
	}
	if _, err := fetchHeads(ctx, s); err != nil {
		return nil, err
	}
	e := &export{Share: s, serving: serving}
	if err := e.find(ctx, run, at); err != nil {
		return nil, err
	}
	b := s.o.Store.Begin()
	defer b.Release()
	for i := range e.entries {
		f := e.entries[i].File
		if f == nil || f.Manifest.IsZero() {
			continue
		}
		if err := s.bring.File(ctx, b, &e.entries[i]); err != nil {
			return nil, err
		}
		e.entries[i].File = f.Plain()
	}
	if err := b.Commit(); err != nil {
		return nil, err
	}
	res, err := e.push(ctx)
	if err != nil {
		return nil, err
	}
	out := &control.Exported{Name: name, Removed: e.removed,
		Names:   len(e.entries) - e.removed - len(res.Failed),
		Objects: res.Objects, Bytes: res.Bytes, Skipped: []control.Skip{}}
	for _, f := range res.Failed {
		out.Skipped = append(out.Skipped, control.Skip{Path: f.Path, Reason: f.Err.Error()})
	}
	return out, s.note(ctx, res)
}

// export is one Export.
type export struct {
	*Share
	serving bool
	entries []record.Entry // ascending by path
	removed int            // of them
}

// find makes the entries of what lies at a path, and tombstones of what was exported to the run before.
func (e *export) find(ctx context.Context, run, at string) error {
	of, err := e.nodes(ctx, at)
	if err != nil {
		return err
	}
	to := run
	if at != shared.Run(at) {
		to = run + "/" + path.Base(at)
	}
	seen := map[string]bool{}
	for _, n := range of {
		if n.Name == nil {
			continue
		}
		one := *n.Name
		one.Path, one.Over, one.Removed = to+strings.TrimPrefix(n.Path, at), nil, nil
		seen[one.Path] = true
		e.entries = append(e.entries, one)
	}
	if len(e.entries) == 0 {
		return &fs.PathError{Op: "export", Path: at, Err: control.NotFound("the remote has no such name: push it first")}
	}
	before, err := e.nodes(ctx, run)
	if err != nil {
		return err
	}
	for _, n := range before {
		switch {
		case n.Name == nil || seen[n.Path] && n.Name.Origin == record.ExportsWriter:
		case n.Name.Origin != record.ExportsWriter:
			return &fs.PathError{Op: "export", Path: run, Err: fmt.Errorf("%s has a run of this name: %w", n.Name.Origin, unix.EEXIST)}
		default:
			e.removed++
			e.entries = append(e.entries, record.Entry{Path: n.Path, Kind: record.KindTombstone})
		}
	}
	return nil
}

// push commits the entries to @exports. Any machine may do so at the same time.
func (e *export) push(ctx context.Context) (writer.Result, error) {
	src := local.Begin(e.o.Store)
	defer src.Close()
	from := objects.Source(src)
	if e.serving {
		from = local.BeginAlone(src)
	}
	for tries := 0; ; tries++ {
		id, err := e.identity(ctx)
		if err != nil {
			return writer.Result{}, err
		}
		w := writer.New(writer.Options{Bucket: e.o.Bucket, Remote: e.o.Joined.ID, State: e.state(id),
			Register: func(context.Context) (record.Writer, error) { return record.ExportsWriter, nil },
			Now:      e.o.Now, Random: e.o.Random, Parallel: parallel})
		res, err := w.Push(ctx, from, writer.Changes{Entries: e.entries, Seen: e.heads.Clock(), Again: true})
		var other *writer.RegisteredError
		if !errors.As(err, &other) && !errors.Is(err, writer.ErrUnsettled) || tries == 8 {
			return res, err
		}
	}
}

// identity is that of the next commit to @exports, whose head is made first if there is none.
func (e *export) identity(ctx context.Context) (id writer.Identity, err error) {
	key := record.HeadKey(record.ExportsWriter)
	_, err = e.o.Bucket.Put(ctx, key, bucket.Bytes(nil), bucket.Cond{Absent: true})
	if err != nil && !errors.Is(err, bucket.ErrPrecondition) && !errors.Is(err, bucket.ErrDoubt) &&
		!errors.Is(err, bucket.ErrConflict) {
		return id, err
	}
	p, _, err := bucket.Read(ctx, e.o.Bucket, key, record.MaxHead, "")
	if err != nil {
		return id, err
	}
	h, err := record.DecodeHead(record.ExportsWriter, p)
	if err != nil {
		return id, err
	}
	id = writer.Identity{Writer: record.ExportsWriter, Instance: h.Instance, Commit: h.Commit,
		Sequence: h.Sequence}
	if id.Instance.IsZero() {
		_, err = e.o.Random.Read(id.Instance[:])
	}
	return id, err
}

// state is what a push to @exports relies on: what this store knows of the remote, or nothing.
func (e *export) state(id writer.Identity) writer.State {
	if e.serving {
		m := &writer.Mem{}
		m.SetIdentity(id) // which cannot fail
		return m
	}
	return &exporting{e.o.State, id}
}

// exporting is a State with an identity of its own.
type exporting struct {
	writer.State
	id writer.Identity
}

func (e *exporting) Identity() (writer.Identity, error) { return e.id, nil }

func (e *exporting) SetIdentity(id writer.Identity) error {
	e.id = id
	return nil
}
