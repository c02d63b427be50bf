// Package attrs compares and changes what names have besides their bytes, as entries of the remote say it.
package attrs

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cas/remote/record"
	"ckptfs/fs/names"
	"ckptfs/fs/steps"
)

// Mode is the mode that a name gets here: a folder's owner may always make names in it.
func Mode(e *record.Entry) uint32 {
	if e.Kind == record.KindFolder {
		return uint32(e.Mode) | 0o700
	}
	return uint32(e.Mode)
}

// Same reports whether a name with the bytes of an entry has its attributes, as far as it can: a
// link has none, and a folder's time is its own on each machine.
func Same(has, e *record.Entry) bool {
	switch e.Kind {
	case record.KindFolder:
		return uint32(has.Mode) == Mode(e) && slices.Equal(has.Attrs, e.Attrs)
	case record.KindFile:
		return has.Mode == e.Mode && has.MTime == e.MTime
	}
	return true
}

// Of are the attributes of a folder that are a user's.
func Of(n *names.Node) (attrs []record.Attr, err error) {
	list := make([]byte, 64<<10)
	k, err := n.ListXattr(list)
	if err != nil {
		return nil, err
	}
	for name := range bytes.SplitSeq(list[:k], []byte{0}) {
		a := record.Attr{Name: string(name)}
		if !strings.HasPrefix(a.Name, "user.") || strings.HasPrefix(a.Name, "user.ckptfs") {
			continue
		}
		value := make([]byte, 64<<10)
		k, err := n.GetXattr(a.Name, value)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return nil, err
		}
		a.Value = string(value[:k])
		attrs = append(attrs, a)
	}
	slices.SortFunc(attrs, func(a, b record.Attr) int { return strings.Compare(a.Name, b.Name) })
	return attrs, nil
}

// Set gives a folder attributes in place of those that it has.
func Set(n *names.Node, has, want []record.Attr) error {
	for _, a := range want {
		if slices.Contains(has, a) {
			continue
		}
		if err := n.SetXattr(a.Name, []byte(a.Value), 0); err != nil {
			return fmt.Errorf("attribute %s: %w", a.Name, err)
		}
	}
	for _, a := range has {
		named := func(b record.Attr) bool { return a.Name == b.Name }
		if slices.ContainsFunc(want, named) {
			continue
		}
		if err := n.RemoveXattr(a.Name); err != nil {
			return fmt.Errorf("attribute %s: %w", a.Name, err)
		}
	}
	return nil
}

// Metrics are those of a step, nil for none.
func Metrics(st *steps.Step) (all []record.Metric) {
	if st == nil {
		return nil
	}
	for _, of := range st.Metrics {
		m := record.Metric{Name: of.Name, Value: of.Value}
		if math.IsNaN(m.Value) {
			m.Value = math.NaN() // of which there is one
		}
		if m.Check() == nil && len(all) < record.MaxMetrics {
			all = append(all, m)
		}
	}
	return all
}

// Size is what an entry's attributes take.
func Size(e *record.Entry) (n int) {
	for _, a := range e.Attrs {
		n += len(a.Name) + len(a.Value)
	}
	return n
}
