package ui

import "ckptfs/fs/control"

// damaged are the files that checks found damaged.
type damaged struct {
	Files []damagedFile
	More  int64 // problems besides, of files or not
}

type damagedFile struct {
	link
	What string
}

// mostDamaged is how many damaged files are named.
const mostDamaged = 20

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
