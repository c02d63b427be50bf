package shared

import (
	"time"

	"ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/control"
)

// Conflict describes a name of which there are several versions.
func Conflict(n *names.Node) control.Conflict {
	c := control.Conflict{Path: n.Path}
	versions := n.Conflicts
	if n.Name != nil {
		versions = append([]*record.Entry{n.Name}, versions...)
	}
	for _, e := range versions {
		v := control.Version{Writer: string(e.Origin), Time: time.Unix(0, e.MTime)}
		if e.File != nil {
			v.Size = e.File.Size
		}
		c.Versions = append(c.Versions, v)
	}
	return c
}
