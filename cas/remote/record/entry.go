package record

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"ckptfs/cas"
)

// Kind says what a name is.
type Kind byte

// The kinds.
const (
	KindFile Kind = iota
	KindLink
	KindFolder
	KindTombstone // it is no more

	kindRemoved // on disk: a tombstone with Removed
)

// Bounds of an entry.
const (
	MaxEntry   = 1 << 20 // bytes, encoded
	MaxMetrics = 4096

	maxMode      = 0o777
	maxLink      = 4095 // bytes of a target
	maxAttr      = 255  // bytes of an attribute's or metric's name
	maxAttrValue = 64 << 10

	attrPrefix = "user."
	ownPrefix  = "user.ckptfs"
)

// Entry is what a writer says of a path.
type Entry struct {
	Path    string
	Kind    Kind
	Origin  Writer // whose it is; with Version its identity
	Version int64  // Lamport clock, from 1
	Mode    uint16 // 0777 at most; 0 of a tombstone
	MTime   int64  // ns since 1970; 0 of a tombstone
	File    *File  // of a file
	Link    string // target of a link
	Attrs   []Attr // of a folder, ascending by name
	Metrics []Metric
	Over    []Replaced // of other writers, in the order of the list that the entry is in
	Removed *Removed   // of a tombstone: what had the name; nil if nobody looked
}

// Removed is what a tombstone removed. Nothing keeps the objects that it needs.
type Removed struct {
	Time  int64 // ns since 1970 when that was found, for people
	Entry Entry // no tombstone; of the tombstone's path, without Over
}

// Attr is an extended attribute.
type Attr struct{ Name, Value string }

// Metric is a step's, which is a folder or a file.
type Metric struct {
	Name  string
	Value float64
}

// Replaced is what of a writer an entry replaces: all up to a version.
type Replaced struct {
	Writer  Writer
	Version int64
}

// Compare orders entries by path, and those of one path by origin, that of own first.
func (e *Entry) Compare(f *Entry, own Writer) int {
	return cmp.Or(ComparePaths(e.Path, f.Path), compareWriters(e.Origin, f.Origin, own))
}

func compareWriters(a, b, own Writer) int {
	switch {
	case a == b:
		return 0
	case a == own:
		return -1
	case b == own:
		return 1
	}
	return cmp.Compare(a, b)
}

// check holds what an entry of a head or table of own can be checked for by itself.
func (e *Entry) check(own Writer) error {
	if err := CheckPath(e.Path); err != nil {
		return err
	}
	if e.Origin != own && own != ArchiveWriter {
		return fmt.Errorf("%.200q: of %s", e.Path, e.Origin)
	}
	for _, err := range []error{e.checkKind(), e.checkAttrs(), e.checkMetrics(), e.checkOver(own),
		e.checkRemoved()} {
		if err != nil {
			return fmt.Errorf("%.200q: %w", e.Path, err)
		}
	}
	return nil
}

func (e *Entry) checkKind() error {
	gone := e.Kind == KindTombstone
	if e.Kind > KindTombstone || e.Version < 1 || e.Mode > maxMode || gone && (e.Mode != 0 || e.MTime != 0) {
		return fmt.Errorf("kind %d, version %d, mode %o", e.Kind, e.Version, e.Mode)
	}
	if (e.File != nil) != (e.Kind == KindFile) || (e.Link != "") != (e.Kind == KindLink) ||
		len(e.Attrs) > 0 && e.Kind != KindFolder ||
		len(e.Metrics) > 0 && e.Kind != KindFolder && e.Kind != KindFile {
		return fmt.Errorf("kind %d with what is another's", e.Kind)
	}
	if len(e.Link) > maxLink || strings.IndexByte(e.Link, 0) >= 0 {
		return fmt.Errorf("link of %d bytes", len(e.Link))
	}
	if e.File != nil {
		return e.File.check()
	}
	return nil
}

func (e *Entry) checkAttrs() error {
	for i, a := range e.Attrs {
		if len(a.Name) <= len(attrPrefix) || len(a.Name) > maxAttr || strings.IndexByte(a.Name, 0) >= 0 ||
			!strings.HasPrefix(a.Name, attrPrefix) || strings.HasPrefix(a.Name, ownPrefix) ||
			len(a.Value) > maxAttrValue || i > 0 && a.Name <= e.Attrs[i-1].Name {
			return fmt.Errorf("attribute %.60q of %d bytes", a.Name, len(a.Value))
		}
	}
	return nil
}

func (e *Entry) checkMetrics() error {
	if len(e.Metrics) > MaxMetrics {
		return fmt.Errorf("%d metrics: %w", len(e.Metrics), cas.ErrTooLarge)
	}
	for i, m := range e.Metrics {
		if err := m.Check(); err != nil {
			return err
		}
		if i > 0 && m.Name <= e.Metrics[i-1].Name {
			return fmt.Errorf("metric %.60q", m.Name)
		}
	}
	return nil
}

// Check returns an error unless an entry may have such a metric.
func (m Metric) Check() error {
	if len(m.Name) < 1 || len(m.Name) > maxAttr || !utf8.ValidString(m.Name) ||
		strings.ContainsFunc(m.Name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fmt.Errorf("metric %.60q", m.Name)
	}
	return nil
}

func (e *Entry) checkOver(own Writer) error {
	for i, o := range e.Over {
		if o.Version < 1 || o.Writer == e.Origin ||
			i > 0 && compareWriters(e.Over[i-1].Writer, o.Writer, own) >= 0 {
			return fmt.Errorf("over version %d of %s", o.Version, o.Writer)
		}
	}
	return nil
}

func (e *Entry) checkRemoved() error {
	if e.Removed == nil {
		return nil
	}
	was := &e.Removed.Entry
	if e.Kind != KindTombstone || was.Kind >= KindTombstone || was.Path != e.Path || was.Over != nil ||
		was.Removed != nil {
		return fmt.Errorf("kind %d removed kind %d, %.200q", e.Kind, was.Kind, was.Path)
	}
	for _, err := range []error{was.checkKind(), was.checkAttrs(), was.checkMetrics()} {
		if err != nil {
			return fmt.Errorf("removed: %w", err)
		}
	}
	return nil
}

// Newest is the greatest version that the entry has or names.
func (e *Entry) Newest() int64 {
	v := e.Version
	if e.Removed != nil {
		v = max(v, e.Removed.Entry.Version)
	}
	for _, o := range e.Over {
		v = max(v, o.Version)
	}
	return v
}

// floatBits is how a metric's value is written: there is one NaN.
func floatBits(v float64) uint64 {
	if math.IsNaN(v) {
		v = math.NaN()
	}
	return math.Float64bits(v)
}
