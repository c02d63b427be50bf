package ui

import (
	"slices"
	"strconv"
	"strings"

	"ckptfs/fs/control"
)

// linked is a text of which some pieces lead somewhere; those without a URL do not.
type linked []link

// withLinks is a text in which paths lead to their pages. Of two that begin alike the longer one counts.
func withLinks(text string, paths []string) (all linked) {
	paths = slices.Clone(paths)
	slices.SortFunc(paths, func(a, b string) int { return len(b) - len(a) })
	from := 0
	plain := func(to int) {
		if from < to {
			all = append(all, link{Text: text[from:to]})
		}
	}
	for at := 0; at < len(text); {
		begins := func(p string) bool { return p != "" && strings.HasPrefix(text[at:], p) }
		i := slices.IndexFunc(paths, begins)
		if i < 0 {
			at++
			continue
		}
		plain(at)
		all = append(all, link{paths[i], pathURL(paths[i])})
		at += len(paths[i])
		from = at
	}
	plain(len(text))
	return all
}

// shown is l as a page shows it.
func (l linked) shown() linked {
	for i := range l {
		l[i].Text = shown(l[i].Text)
	}
	return l
}

// storedAs is how a tensor is stored, with links to the tensors that it is made of: each is named by its file
// alone where it has the tensor's own name.
func storedAs(t *control.Tensor) (all linked) {
	s := *t.StoredAs
	s.Bases = slices.Clone(s.Bases)
	for i := range s.Bases {
		if s.Bases[i].Path != "" {
			s.Bases[i].Path, s.Bases[i].Tensor = "\x00"+strconv.Itoa(i)+"\x00", ""
		}
	}
	for k, piece := range strings.Split(s.String(), "\x00") {
		if k%2 == 0 {
			all = append(all, link{Text: piece})
			continue
		}
		i, _ := strconv.Atoi(piece) // it was made above
		all = append(all, baseLink(t, &t.StoredAs.Bases[i]))
	}
	return all
}

// baseLink leads to a tensor that another is made of.
func baseLink(t *control.Tensor, b *control.BaseTensor) link {
	switch b.Tensor {
	case "":
		return link{shown(b.Path), pathURL(b.Path)}
	case t.Name:
		return link{shown(b.Path), tensorURL(b.Path, b.Tensor)}
	}
	return link{shown(b.Path) + ":" + shown(b.Tensor), tensorURL(b.Path, b.Tensor)}
}
