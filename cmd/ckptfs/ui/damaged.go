package ui

import (
	"context"
	"slices"
	"strings"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

// damaged are the files that checks found damaged.
type damaged struct {
	Files []damagedFile
	More  int64  // problems besides, of files or not
	Check string // the command that names them, and the repair; "": the page has it elsewhere
}

type damagedFile struct {
	link
	What string
}

// mostDamaged is how many damaged files are named.
const mostDamaged = 20

// damagedAt are the files that checks found damaged and that are at or below a path; nil: none are.
func (s *server) damagedAt(ctx context.Context, p string) (*damaged, error) {
	st, err := s.c.Status(ctx)
	if err != nil || st.LastCheck == nil {
		return nil, err
	}
	is := *st.LastCheck
	is.Found = slices.DeleteFunc(slices.Clone(is.Found), func(f control.Problem) bool {
		return f.Path != p && !strings.HasPrefix(f.Path, p+"/")
	})
	is.Problems = int64(len(is.Found))
	d := damagedOf(&is)
	if d != nil {
		d.Check = text.CheckOf(st.LastCheck) + " " + s.root()
	}
	return d, nil
}

// damagedOf names the files that suffer from what is known after a check; nil: none do.
func damagedOf(c *control.LastCheck) *damaged {
	if c == nil {
		return nil
	}
	d := &damaged{}
	for _, p := range c.Found {
		if p.Path != "" && len(d.Files) < mostDamaged {
			d.Files = append(d.Files, damagedFile{link{shown(p.Path), pathURL(p.Path)},
				cut(p.What, mostTitle)})
		}
	}
	if len(d.Files) == 0 {
		return nil
	}
	d.More = c.Problems - int64(len(d.Files))
	return d
}
