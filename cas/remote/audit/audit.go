// Package audit looks whether a remote is sound: whether every head and table can be read, every object that
// a name needs is there and as long as plans say, and every plan finds its records in the footers of their
// objects; if asked, also whether all bytes of the objects are as they were put.
//
// It changes nothing, and others may publish and collect meanwhile: an object that went since the names were
// read is looked for in the names once more.
package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/errgroup"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/survey"
	"ckptfs/cas/segment"
)

// Options say what is looked at.
type Options struct {
	Remote   record.ID
	ReadData bool // all bytes of the objects that names need
	Share    bool // how much of each data object files need: takes a bit of memory for each record
	// Say is told what is being done, and how much of it was; from several goroutines, one at a time.
	Say func(doing string, n int64)
}

// Report is what was found.
type Report struct {
	Heads    int       `json:"heads"`
	Entries  int       `json:"entries"`
	Files    int64     `json:"files"` // that are names or conflicts, and not in their entries
	Objects  int64     `json:"objects"`
	Bytes    int64     `json:"bytes"` // of the objects that are there
	Records  int64     `json:"records"`
	ReadData int64     `json:"read_bytes,omitempty"`
	Share    *Share    `json:"data_objects,omitempty"`
	Problems []Problem `json:"problems"`
	// More is how many problems are not told.
	More int64 `json:"more_problems,omitempty"`
}

// Problem is something that is not as it should be.
type Problem struct {
	Key   string   `json:"key"` // of the object
	What  string   `json:"what"`
	Kind  Kind     `json:"kind"`
	Paths []string `json:"paths"` // that need it, some of them
	More  int64    `json:"more_paths,omitempty"`

	id record.ID
}

// Kind says what to do about a problem.
type Kind string

// The kinds.
const (
	Names   Kind = "names"   // a head or table: repair makes it again
	Content Kind = "content" // an object that files need: it has to be put back, or the files published again
)

const (
	atOnce       = 16 // requests
	mostProblems = 1000
	mostPaths    = 16
	keptFooters  = 256
)

// audit is one Run.
type audit struct {
	o       Options
	b       bucket.Bucket
	reader  *fetch.Reader
	listed  map[record.Class]*listing
	footers *lru.Cache[record.ID, footer]

	mu    sync.Mutex
	rep   Report
	used  map[record.ID]*used // of data objects; nil: not asked for
	found map[string]int      // by key and what: index of Problems
}

// Run looks through a remote. Errors are those of the engine; what is wrong with the remote is in the report.
func Run(ctx context.Context, b bucket.Bucket, o Options) (*Report, error) {
	a := &audit{o: o, b: b, reader: &fetch.Reader{Bucket: b}, found: map[string]int{},
		listed: map[record.Class]*listing{}}
	a.footers, _ = lru.New[record.ID, footer](keptFooters)
	a.rep.Problems = []Problem{}
	if o.Share {
		a.used = map[record.ID]*used{}
	}
	r := survey.New(b, o.Remote, a.say)
	r.Bad = func(key string, w record.Writer, err error) {
		a.problem(key, Names, fmt.Sprintf("of %s: %v", w, err), "")
	}
	m, err := r.Mark(ctx)
	if err != nil {
		return nil, err
	}
	a.rep.Heads, a.rep.Entries = len(m.Heads), m.Entries
	if err := a.list(ctx); err != nil {
		return nil, err
	}
	if err := a.files(ctx, m); err != nil {
		return nil, err
	}
	if o.ReadData {
		if err := a.readData(ctx, m); err != nil {
			return nil, err
		}
	}
	if o.Share {
		a.rep.Share = a.share()
	}
	return &a.rep, a.again(ctx, r)
}

// again drops what is wrong with objects that no name needs any more: it was read while it went.
func (a *audit) again(ctx context.Context, r *survey.Reading) error {
	if len(a.rep.Problems) == 0 {
		return nil
	}
	r.Bad = func(string, record.Writer, error) {} // they are told
	m, err := r.Mark(ctx)
	if err != nil {
		return err
	}
	a.rep.Problems = slices.DeleteFunc(a.rep.Problems, func(p Problem) bool {
		return p.Kind == Content && !m.Live.Has(p.id)
	})
	return nil
}

func (a *audit) say(doing string, n int64) {
	if a.o.Say != nil {
		a.o.Say(doing, n)
	}
}

// problem notes one, once for all paths.
func (a *audit) problem(key string, kind Kind, what, path string) {
	_, id, _ := record.ParseObject(key)
	a.mu.Lock()
	defer a.mu.Unlock()
	i, known := a.found[key+"\x00"+what]
	if !known {
		if len(a.rep.Problems) == mostProblems {
			a.rep.More++
			return
		}
		i = len(a.rep.Problems)
		a.found[key+"\x00"+what] = i
		a.rep.Problems = append(a.rep.Problems, Problem{Key: key, Kind: kind, What: what, Paths: []string{},
			id: id})
	}
	p := &a.rep.Problems[i]
	switch {
	case path == "" || slices.Contains(p.Paths, path):
	case len(p.Paths) < mostPaths:
		p.Paths = append(p.Paths, path)
	default:
		p.More++
	}
}

// files looks at each file that is a name or a conflict.
func (a *audit) files(ctx context.Context, m *survey.Mark) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	err := m.Each(func(path string, held []*record.Entry) error {
		for _, e := range names.Merge(held).Tips {
			if e.File == nil || e.File.Manifest.IsZero() {
				continue
			}
			a.mu.Lock()
			a.rep.Files++
			n := a.rep.Files
			a.mu.Unlock()
			if n%100 == 0 {
				a.say("looking at files", n)
			}
			g.Go(func() error { return a.file(gctx, path, e.File) })
		}
		return gctx.Err()
	})
	return errors.Join(g.Wait(), ignore(err, context.Canceled))
}

// ignore is an error but for one that another explains.
func ignore(err, known error) error {
	if errors.Is(err, known) {
		return nil
	}
	return err
}

// file looks at one: its objects, its plan, and the records that this names.
func (a *audit) file(ctx context.Context, path string, f *record.File) error {
	missing := false
	for _, id := range f.Deps {
		if _, ok := a.class(id); !ok {
			missing = true
			class := record.ClassData // mostly: of what is not there it is not known
			if id == f.Plan.Object {
				class = record.ClassMeta
			}
			a.problem(class.Key(id), Content, "it is not there", path)
		}
	}
	if missing {
		return ctx.Err()
	}
	plan, err := a.reader.Plan(ctx, f)
	if err == nil {
		err = a.places(ctx, path, plan)
	}
	return a.wrong(record.ClassMeta.Key(f.Plan.Object), path, err)
}

// damage reports whether an error is of what lies in the remote.
func damage(err error) bool {
	return segment.IsDamage(err) || slices.ContainsFunc([]error{cas.ErrCorrupt, bucket.ErrNotFound,
		bucket.ErrRange, bucket.ErrTooLarge}, func(kind error) bool { return errors.Is(err, kind) })
}

// wrong notes an error that is of what lies in the remote. Others it returns.
func (a *audit) wrong(key, path string, err error) error {
	if err == nil || !damage(err) {
		return err
	}
	var of *fetch.Error
	if errors.As(err, &of) {
		key, err = of.Key, fmt.Errorf("at %d: %w", of.Off, of.Err)
	}
	a.problem(key, Content, err.Error(), path)
	return nil
}

// places looks whether the records of a plan are where it says.
func (a *audit) places(ctx context.Context, path string, p *record.Plan) error {
	feet := make([]footer, len(p.Objects))
	for i, o := range p.Objects {
		size, ok := a.listed[o.Class].size(o.ID)
		if !ok || size != o.Len {
			a.problem(o.Class.Key(o.ID), Content, fmt.Sprintf("it has %d bytes, and plans say %d", size, o.Len), path)
			return nil
		}
		foot, err := a.footer(ctx, o)
		if err != nil {
			return a.wrong(o.Class.Key(o.ID), path, err)
		}
		feet[i] = foot
	}
	records := int64(0)
	at := func(what string, place record.Place, hash []byte) {
		records++
		o := p.Objects[place.Object]
		i, ok := feet[place.Object].find(place, hash)
		if ok {
			a.use(o, i, len(feet[place.Object]), place)
		} else {
			a.problem(o.Class.Key(o.ID), Content, fmt.Sprintf("at %d is no record of the %s that a plan says",
				place.Off, what), path)
		}
	}
	at("manifest", p.Record.Place, p.Manifest[:])
	for _, r := range p.Lists {
		at("list", r.Place, nil)
	}
	for _, c := range p.Chunks {
		at("chunk", c, nil)
	}
	for _, b := range p.Bases {
		at("base", b.Place, b.Hash[:])
	}
	a.mu.Lock()
	a.rep.Records += records
	a.mu.Unlock()
	return nil
}
