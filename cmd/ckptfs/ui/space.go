package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/user"
	"path"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"ckptfs/cmd/ckptfs/ui/known"
	"ckptfs/fs/control"
	"ckptfs/fs/steps"
	indexruns "ckptfs/index/runs"
)

// spaceBody is the page of who takes what, and who shares it.
type spaceBody struct {
	Path   string
	ByUser bool
	Part   string
}

func (s *server) space(ctx context.Context, r *http.Request) (*page, error) {
	q := r.URL.Query()
	b := &spaceBody{Path: q.Get("path"), ByUser: q.Get("by") == "user"}
	if !q.Has("path") {
		b.Path = s.top(ctx)
	}
	by, flag := "", ""
	if b.ByUser {
		by, flag = "user", "--by-user "
	}
	b.Part = withQuery("/part/space", "path", b.Path, "by", by, "page", q.Get("page"))
	return &page{Name: "space", Title: "Space", Here: "space", Body: b,
		JSON:     withQuery("/part/space", "path", b.Path, "by", by, "json", "1"),
		Commands: []string{"ckptfs du " + flag + s.full(b.Path)}}, nil
}

// top is the folder that the page begins with: the root, or runs/ where that is all there is.
func (s *server) top(ctx context.Context) string {
	top := ""
	err := s.c.Entries(ctx, "", func(some []control.Entry) error {
		for i := range some {
			if string(some[i].Name) != steps.Dir {
				return errMore
			}
			top = steps.Dir
		}
		return nil
	})
	if err != nil {
		return ""
	}
	return top
}

var errMore = errors.New("there is more")

// spaceOf is what a folder is looked at for.
type spaceOf struct {
	path   string
	byUser bool
}

// room is what the parts of a folder take, or what users do, as far as it was counted.
type room struct {
	control.Du // all of it, and the parts in the order of the page
	counted    map[string]bool
	with       map[string][]control.Sharer
	sharers    int  // of how many parts it is to be told who shares them
	total      bool // all of it was counted
	at         time.Time
}

const (
	// partsAtATime is how many parts are counted before the page tells of them.
	partsAtATime = 20
	// mostSharers is for how many parts it is told who shares with them.
	mostSharers = 15
)

// tell is a copy, in the order of the page: what takes most first, and what was not counted yet behind that.
func (m *room) tell() *room {
	out := *m
	out.counted, out.at = map[string]bool{}, time.Now()
	for name := range m.counted {
		out.counted[name] = true
	}
	out.with = make(map[string][]control.Sharer, len(m.with))
	for name, with := range m.with {
		out.with[name] = with
	}
	out.Parts = slices.Clone(m.Parts)
	behind := func(u *control.Use) int { return map[bool]int{true: 0, false: 1}[m.counted[u.Name]] }
	slices.SortFunc(out.Parts, func(a, b control.Use) int {
		return cmp.Or(behind(&a)-behind(&b), cmp.Compare(b.AloneBytes, a.AloneBytes),
			cmp.Compare(b.StoredBytes, a.StoredBytes), cmp.Compare(b.LogicalBytes, a.LogicalBytes),
			indexruns.Compare(a.Name, b.Name))
	})
	return &out
}

// count finds out what a folder takes: at once what lies in the tree, then what each part needs of the
// segments, then who shares that.
func (s *server) count(ctx context.Context, of spaceOf, tell func(*room)) (*room, error) {
	in := control.DuOptions{Paths: []string{of.path}, ByUser: of.byUser, Only: control.DuSizes}
	d, err := s.c.Du(ctx, in)
	if err != nil {
		return nil, err
	}
	m := &room{Du: *d, counted: map[string]bool{}, with: map[string][]control.Sharer{}}
	if !of.byUser {
		slices.SortFunc(m.Parts, func(a, b control.Use) int {
			return cmp.Or(cmp.Compare(b.LogicalBytes, a.LogicalBytes), indexruns.Compare(a.Name, b.Name))
		})
		tell(m.tell())
		if err := s.countParts(ctx, m, tell); err != nil {
			return nil, err
		}
		in.Only, in.Brief = control.DuAll, true
	} else {
		tell(m.tell())
		in.Only = control.DuAll
	}
	if d, err = s.c.Du(ctx, in); err != nil {
		return nil, err
	}
	parts := m.Parts
	m.total = true
	if m.Du = *d; !of.byUser {
		m.Parts = parts
		return s.countSharers(ctx, m.tell(), tell)
	}
	for i := range m.Parts {
		m.counted[m.Parts[i].Name] = true
	}
	return m.tell(), nil
}

// countParts finds out what each part needs.
func (s *server) countParts(ctx context.Context, m *room, tell func(*room)) error {
	at, names := map[string]int{}, make([]string, len(m.Parts))
	for i := range m.Parts {
		names[i] = m.Parts[i].Name
		at[names[i]] = i
	}
	take := func(some []string) error {
		o := control.DuOptions{Paths: some, Only: control.DuParts}
		if len(some) == 1 {
			o = control.DuOptions{Paths: some, Brief: true} // its own parts are not asked for
		}
		d, err := s.c.Du(ctx, o)
		if err != nil {
			return err
		}
		for _, u := range append(d.Parts, d.Use) {
			if i, ok := at[u.Name]; ok {
				m.Parts[i], m.counted[u.Name] = u, true
			}
		}
		return nil
	}
	for some := range slices.Chunk(names, partsAtATime) {
		err := take(some)
		if went(err) {
			err = nil
			for i := 0; i < len(some) && err == nil; i++ {
				if err = take(some[i : i+1]); went(err) {
					err = nil
				}
			}
		}
		if err != nil {
			return err
		}
		tell(m.tell())
	}
	m.Parts = slices.DeleteFunc(m.Parts, func(u control.Use) bool { return !m.counted[u.Name] })
	return nil
}

// went reports whether what was asked about is not there any more.
func went(err error) bool { return err != nil && control.AsError(err).Code == control.CodeNotFound }

// countSharers finds out who shares with the first parts.
func (s *server) countSharers(ctx context.Context, m *room, tell func(*room)) (*room, error) {
	var of []string
	for i := range m.Parts[:min(len(m.Parts), mostSharers)] {
		if u := &m.Parts[i]; u.StoredBytes > u.AloneBytes {
			of = append(of, u.Name)
		}
	}
	m.sharers = len(of)
	for _, name := range of {
		tell(m.tell())
		one, err := s.c.Du(ctx, control.DuOptions{Paths: []string{name}, Only: control.DuSharers})
		if err != nil && !went(err) {
			return nil, err
		}
		m.with[name] = nil
		if err == nil {
			m.with[name] = one.SharedWith[:min(len(one.SharedWith), 3)]
		}
	}
	return m.tell(), nil
}

// spacePartBody is what the parts of a folder take, or what users do.
type spacePartBody struct {
	*room
	Path    string
	Waits   string // what is still to come
	At      string // when it was counted; "": just now
	Rows    []useRow
	Pages   []link
	PageNow int
	ByUser  bool
	Chart   chart
}

// Total reports whether all of it was counted together.
func (b *spacePartBody) Total() bool { return b.total }

type useRow struct {
	control.Use
	Counted    bool
	Shown, URL string
	Shared     int64
	With       []sharer
}

func (s *server) spacePart(ctx context.Context, r *http.Request) (*page, error) {
	q := r.URL.Query()
	of := spaceOf{q.Get("path"), q.Get("by") == "user"}
	if q.Get("json") == "1" {
		d, err := s.c.Du(ctx, control.DuOptions{Paths: []string{of.path}, ByUser: of.byUser})
		return &page{Data: d}, err
	}
	m, whole, err := s.rooms.Of(of).Get(ctx, known.Fresh, patience)
	if err != nil {
		return nil, err
	}
	b := &spacePartBody{room: m, Path: of.path, ByUser: of.byUser}
	p := &page{Name: "spacepart", Body: b}
	if !whole {
		p.Refresh = 1
		b.Waits = "Looking at all files."
	}
	if m == nil {
		b.room = &room{}
		return p, nil
	}
	switch n := len(m.counted); {
	case whole && time.Since(m.at) < 2*known.Fresh:
	case whole:
		b.At = ago(m.at)
	case n < len(m.Parts):
		b.Waits = fmt.Sprintf("Counting what each needs: %s of %s.", humanize.Comma(int64(n)),
			humanize.Comma(int64(len(m.Parts))))
	case len(m.with) < m.sharers:
		b.Waits = fmt.Sprintf("Looking who shares: %d of %d.", len(m.with), m.sharers)
	default:
		b.Waits = fmt.Sprintf("Counted %s. It is counted again.", ago(m.at))
	}
	b.table(&url.URL{Path: "/space", RawQuery: q.Encode()})
	return p, nil
}

// table makes the rows of the page that is asked for, and the chart of the first ones.
func (b *spacePartBody) table(u *url.URL) {
	c := bars{Bytes: true, Horizontal: true, Series: []barSeries{{Name: "alone"}, {Name: "shared"},
		{Name: "local"}}}
	var rows []useRow
	for i := range b.Parts {
		u := &b.Parts[i]
		row := useRow{Use: *u, Counted: b.counted[u.Name], Shown: u.Name,
			Shared: u.StoredBytes - u.AloneBytes}
		if b.ByUser {
			if who, err := user.LookupId(u.Name); err == nil {
				row.Shown = who.Username
			}
		} else {
			row.Shown, row.URL = path.Base(u.Name), pathURL(u.Name)
			for _, x := range b.with[u.Name] {
				row.With = append(row.With, sharer{x.Path, pathURL(x.Path), x.Bytes})
			}
		}
		rows = append(rows, row)
	}
	b.Rows, b.Pages, b.PageNow = paged(rows, u)
	for i := min(len(rows), 20) - 1; i >= 0; i-- { // the first is drawn at the top
		if u := &rows[i]; u.Counted {
			c.Categories = append(c.Categories, cut(u.Shown, 30))
			for k, v := range []int64{u.AloneBytes, u.Shared, u.LocalBytes} {
				c.Series[k].Values = append(c.Series[k].Values, number(v))
			}
		}
	}
	if len(c.Categories) > 0 {
		b.Chart = chart{"bars", "What each takes alone, what it shares, and its local bytes", c}
		if len(rows) > 20 {
			b.Chart.Caption += ": the first 20"
		}
	}
}
