package text

import (
	"fmt"
	"io"
	"strings"

	"ckptfs/fs/control"
)

// Lineage prints the chains of models.
func Lineage(w io.Writer, l *control.Lineage) {
	for i := range l.Models {
		m := &l.Models[i]
		for j := 0; j < len(m.Chain); j++ {
			left := m.Chain[j].Skipped
			if n := idle(m.Chain[j:]); j > 0 && n > maxIdle {
				left, j = left+n, j+n
			}
			if left > 0 {
				fmt.Fprintf(w, "   … %s without any of its tensors\n", Plural(int64(left), "ancestor"))
			}
			c := &m.Chain[j]
			indent := ""
			if j > 0 {
				indent = "   "
			}
			fmt.Fprintf(w, "%s%s: %s%s\n", indent, Model(&c.Model), owned(m, j), howText(m.Chain, j))
		}
		for j := range m.Merged {
			fmt.Fprintf(w, "   merged from %s\n", Model(&m.Merged[j]))
		}
	}
	for i := range l.Reproduced {
		r := &l.Reproduced[i]
		fmt.Fprintf(w, "%s: reproduced: %s\n", Printable(r.Path), Reproduction(r))
		if r.Contradicts != "" {
			fmt.Fprintf(w, "   though %s is declared as its parent\n", Printable(r.Contradicts))
		}
	}
	if len(l.Models) == 1 && len(l.Reproduced) == 0 {
		suggestParent(w, &l.Models[0])
	}
	if l.Problem != "" {
		fmt.Fprintf(w, "%s: %s\n", Printable(l.Path), Printable(l.Problem))
	}
}

// Reproduction says what a file follows from, and how sure that is.
func Reproduction(r *control.Reproduction) string {
	return fmt.Sprintf("%s; %s of its tensors' bytes follow, given %s", Printable(r.What), Percent(r.Share),
		Bytes(r.StoredBytes))
}

// owned says how many of a model's tensors an ancestor of it owns, or it itself: those that it first stored.
func owned(m *control.ModelLineage, i int) string {
	c := &m.Chain[i]
	switch unknown := m.Chain[0].Tensors == 0; { // its bytes are not here
	case unknown && i == 0:
		return "its tensors are known once `ckptfs pull` has brought it"
	case unknown:
		return "owns none that are known"
	}
	s := fmt.Sprintf("owns %d of them", c.OwnedTensors)
	if i == 0 {
		s = fmt.Sprintf("owns %d of its %s", c.OwnedTensors, Plural(int64(c.Tensors), "tensor"))
	}
	if c.OwnedBytes > 0 {
		s += ", " + Bytes(c.OwnedBytes)
	}
	return s
}

// suggestParent says how to record a parent of the model that a chain begins with: none is, if a program
// loaded another run's checkpoint and trained on.
func suggestParent(w io.Writer, m *control.ModelLineage) {
	if len(m.Chain) == 0 || len(m.Merged) > 0 {
		return
	}
	if first := &m.Chain[len(m.Chain)-1]; first.Parent == 0 && !first.Retired {
		fmt.Fprintf(w, "no parent of %s is known; if it has one: setfattr -n user.parent -v runs/RUN/STEP on its step, "+
			"or ckptfs.record(parent=…) in Python\n", Printable(first.Path))
	}
}

// maxIdle is how many ancestors in a row that own nothing are shown one by one: a run may have thousands.
const maxIdle = 3

// idle is how many of the chain's first own nothing, with none left out between them, but for the last, where
// it begins.
func idle(chain []control.Ancestor) int {
	n := 0
	for n < len(chain)-1 && chain[n].OwnedTensors == 0 && chain[n+1].Skipped == 0 {
		n++
	}
	return n
}

// Model names a model.
func Model(m *control.Model) string {
	s := fmt.Sprintf("%s (%d)", Printable(m.Path), m.Seq)
	if m.Retired {
		s += ", retired " + Time(m.RetiredAt)
	}
	return s
}

// howText says where it was learnt that a model of a chain is the parent of the one before, if it is.
func howText(chain []control.Ancestor, i int) string {
	if i == 0 || chain[i].Skipped > 0 {
		return ""
	}
	return "; parent: " + chain[i-1].How
}

// LineageDot prints them as a graph for Graphviz.
func LineageDot(w io.Writer, l *control.Lineage) {
	fmt.Fprintln(w, "digraph lineage {\n\trankdir=BT; node [shape=box];")
	seen := map[string]bool{}
	line := func(format string, args ...any) {
		if s := fmt.Sprintf(format, args...); !seen[s] {
			seen[s] = true
			fmt.Fprintln(w, s)
		}
	}
	node := func(m *control.Model) {
		style := ""
		if m.Retired {
			style = ", style=dashed"
		}
		line("\t%d [label=%s%s];", m.Seq, dotText(m.Path), style)
	}
	told := map[uint64]bool{}
	for i := range l.Models {
		for j := range l.Models[i].Chain {
			told[l.Models[i].Chain[j].Seq] = true
		}
	}
	for i := range l.Models {
		m := &l.Models[i]
		for j := range m.Chain {
			c := &m.Chain[j]
			node(&c.Model)
			if j == 0 {
				continue
			}
			from := &m.Chain[j-1]
			switch {
			case !told[from.Parent]:
				line("\t%d -> %d [label=\"… %d\", style=dotted];", from.Seq, c.Seq, c.Skipped)
			case from.How == "inferred":
				line("\t%d -> %d [label=%s, style=dotted];", from.Seq, from.Parent, dotText(from.How))
			default:
				line("\t%d -> %d [label=%s];", from.Seq, from.Parent, dotText(from.How))
			}
		}
		for j := range m.Merged {
			node(&m.Merged[j])
			line("\t%d -> %d [label=\"merged from\", style=dashed];", m.Seq, m.Merged[j].Seq)
		}
	}
	fmt.Fprintln(w, "}")
}

// dotText is a string in Graphviz' language.
func dotText(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(Printable(s)) + `"`
}
