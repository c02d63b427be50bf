package share

import (
	"context"
	"fmt"
	"strings"

	rnames "ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/control"
)

// mostNamed is how many names an error lists.
const mostNamed = 8

// refuse is the error of a push that would leave a name with several versions, as far as heads tell now. A
// writer that commits at the same moment is not seen.
func (p *push) refuse(ctx context.Context) error {
	if _, err := fetchHeads(ctx, p.Share); err != nil {
		return err
	}
	ch, err := p.changes(ctx, p.entries)
	if err != nil {
		return err
	}
	held, err := p.held(ctx, p.entries)
	if err != nil {
		return err
	}
	var several []string
	for i := range ch.Entries {
		e := ch.Entries[i]
		e.Origin, e.Version = record.Writer(p.out.Writer), ch.Seen+1
		if m := rnames.Merge(append(held[e.Path], &e)); len(m.Conflicts) > 0 {
			several = append(several, e.Path)
		}
	}
	if len(several) == 0 {
		return nil
	}
	named := strings.Join(several[:min(len(several), mostNamed)], ", ")
	if more := len(several) - mostNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return &control.Error{Code: control.CodeConflict, Message: "nothing is published: others changed what was changed here, too: " +
		named + "; without --no-conflict both versions are kept"}
}
