package ui

import (
	"context"
	"net/http"
	"os/user"
	"path"

	"ckptfs/fs/control"
)

// spaceBody is the page of who takes what, and who shares it.
type spaceBody struct {
	Path   string
	ByUser bool
	Part   string
}

func (s *server) space(_ context.Context, r *http.Request) (*page, error) {
	q := r.URL.Query()
	b := &spaceBody{Path: q.Get("path"), ByUser: q.Get("by") == "user"}
	if !q.Has("path") {
		b.Path = "runs"
	}
	by, flag := "", ""
	if b.ByUser {
		by, flag = "user", "--by-user "
	}
	b.Part = withQuery("/part/space", "path", b.Path, "by", by)
	return &page{Name: "space", Title: "Space", Here: "space", Body: b, JSON: withJSON(b.Part),
		Commands: []string{"ckptfs du " + flag + s.full(b.Path)}}, nil
}

// spacePartBody is what the parts of a folder take, or what users do.
type spacePartBody struct {
	*control.Du
	Path   string
	Rows   []useRow
	ByUser bool
	Chart  chart
}

type useRow struct {
	control.Use
	Shown, URL string
	Shared     int64
	With       []sharer
}

// mostSharers is for how many parts it is told who shares with them.
const mostSharers = 15

func (s *server) spacePart(ctx context.Context, r *http.Request) (*page, error) {
	q := r.URL.Query()
	b := &spacePartBody{Path: q.Get("path"), ByUser: q.Get("by") == "user"}
	d, err := s.c.Du(ctx, control.DuOptions{Paths: []string{b.Path}, ByUser: b.ByUser})
	if err != nil {
		return nil, err
	}
	b.Du = d
	c := bars{Bytes: true, Horizontal: true, Series: []barSeries{{Name: "alone"}, {Name: "shared"},
		{Name: "local"}}}
	for i := range d.Parts {
		u := &d.Parts[i]
		row := useRow{Use: *u, Shown: u.Name, Shared: u.StoredBytes - u.AloneBytes}
		if b.ByUser {
			if who, err := user.LookupId(u.Name); err == nil {
				row.Shown = who.Username
			}
		} else {
			row.Shown, row.URL = path.Base(u.Name), pathURL(u.Name)
			if i < mostSharers && row.Shared > 0 {
				if one, err := s.c.Du(ctx, control.DuOptions{Paths: []string{u.Name}}); err == nil {
					for _, x := range one.SharedWith[:min(len(one.SharedWith), 3)] {
						row.With = append(row.With, sharer{x.Path, pathURL(x.Path), x.Bytes})
					}
				}
			}
		}
		b.Rows = append(b.Rows, row)
	}
	for i := min(len(b.Rows), 20) - 1; i >= 0; i-- { // the first is drawn at the top
		u := &b.Rows[i]
		c.Categories = append(c.Categories, cut(u.Shown, 30))
		for k, v := range []int64{u.AloneBytes, u.Shared, u.LocalBytes} {
			c.Series[k].Values = append(c.Series[k].Values, number(v))
		}
	}
	b.Chart = chart{"bars", "What each takes alone, what it shares, and its local copies", c}
	return &page{Name: "spacepart", Body: b, Data: d}, nil
}
