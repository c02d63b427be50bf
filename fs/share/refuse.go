package share

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	rnames "ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/control"
)

// mostNamed is how many names an error lists.
const mostNamed = 8

// severalOf are the names with several versions, by all that is held of each.
func severalOf(held [][]*record.Entry) (paths []string) {
	var all []record.Entry
	for _, of := range held {
		for _, e := range of {
			all = append(all, *e)
		}
	}
	for _, n := range rnames.Tree(all) {
		if len(n.Conflicts) > 0 {
			paths = append(paths, n.Path)
		}
	}
	return paths
}

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
	was, own := severalOf(slices.Collect(maps.Values(held))), map[string]bool{}
	for i := range ch.Entries {
		e := ch.Entries[i]
		e.Origin, e.Version = record.Writer(p.out.Writer), ch.Seen+1
		held[e.Path], own[e.Path] = append(held[e.Path], &e), true
	}
	several := severalOf(slices.Collect(maps.Values(held)))
	several = slices.DeleteFunc(several, func(p string) bool { return !own[p] && slices.Contains(was, p) })
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
