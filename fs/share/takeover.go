package share

import (
	"time"

	"ckptfs/cas/remote/record"
	"ckptfs/fs/names"
	"ckptfs/fs/share/attrs"
	"ckptfs/fs/share/known"
	"ckptfs/fs/tree"
)

// takeOver gives a name, which nobody changed here, the attributes that were published with the bytes that it
// has, and looks at it again.
func (p *pull) takeOver(l *looker, n *names.Node, has, e *record.Entry) (look known.Sum, err error) {
	mode := attrs.Mode(e)
	set := &tree.SetAttr{Mode: &mode}
	if e.Kind == record.KindFile {
		mtime := tree.TimespecOf(time.Unix(0, e.MTime))
		set.Mtime = &mtime
	}
	err = p.lazy.quietly(e.Path, func() error {
		_, err := p.o.Tree.Setattr(n, set)
		return err
	})
	if err != nil {
		return look, err
	}
	if e.Kind == record.KindFolder {
		if err := attrs.Set(n, has.Attrs, e.Attrs); err != nil {
			return look, err
		}
	}
	p.o.Kernel().InvalidateData(n.ID(), -1, 0)
	st, err := p.stepAt(e.Path) // its metrics may be attributes
	if err == nil {
		_, look, err = l.entry(n, e.Path, st, nil)
	}
	return look, err
}
