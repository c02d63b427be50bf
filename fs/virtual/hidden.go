package virtual

import (
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cas/locks"
	"ckptfs/fs/names"
	"ckptfs/fs/view"
)

// hiddenViews are the views that were unlinked beside files with several names. The flag in the record is the
// inode's, and would hide the views beside the other names, too. So these views are remembered as long as the
// store is open, and appear again after the next start. Each holds a reference to its directory.
type hiddenViews struct {
	mu locks.Mutex[leafLock]
	at map[names.Alias]bool
}

// maxHiddenViews bounds them; beyond it the flag is set.
const maxHiddenViews = 4096

func (h *hiddenViews) has(at names.Alias) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at[at]
}

// hide remembers a view.
func (v *Virtual) hide(at names.Alias) {
	h := &v.hidden
	at.Dir.Pin()
	h.mu.Lock()
	known := h.at[at]
	if h.at == nil {
		h.at = map[names.Alias]bool{}
	}
	h.at[at] = true
	h.mu.Unlock()
	if known {
		at.Dir.Unpin()
	}
}

// Unhide forgets the view beside dir/source, a name that was removed or made. With source "" it forgets all
// views in a directory that was removed.
func (v *Virtual) Unhide(dir *names.Node, source string) {
	h := &v.hidden
	var gone []names.Alias
	h.mu.Lock()
	switch stem, ok := view.Stem(source); {
	case len(h.at) == 0:
	case source == "":
		for a := range h.at {
			if a.Dir == dir {
				gone = append(gone, a)
			}
		}
	case ok && h.at[names.Alias{Dir: dir, Name: stem + view.Suffix}]:
		gone = []names.Alias{{Dir: dir, Name: stem + view.Suffix}}
	}
	for _, a := range gone {
		delete(h.at, a)
	}
	h.mu.Unlock()
	for _, a := range gone {
		a.Dir.Unpin()
	}
}

// HideView is unlink of a view. It marks all files that the view could be made of. ENOENT when dir/name is no
// view.
func (v *Virtual) HideView(dir *names.Node, name string) error {
	stem, ok := strings.CutSuffix(name, view.Suffix)
	if !ok || stem == "" || !v.viewsHere(dir) {
		return unix.ENOENT
	}
	at := names.Alias{Dir: dir, Name: name}
	found, shared := false, false
	for _, ext := range view.Sources {
		src, st, err := v.o.Names.Child(dir, stem+ext)
		if err != nil {
			continue
		}
		if n := v.viewOf(src, at); n != nil {
			found = true
			if st.Nlink > 1 && !v.hidden.full() {
				shared = true
			} else {
				src.File().Lock()
				err = src.File().HideViewLocked(true)
				src.File().Unlock()
			}
			n.Unpin()
		}
		src.Unpin()
		if err != nil {
			return err
		}
	}
	if shared {
		v.hide(at)
	}
	if !found {
		return unix.ENOENT
	}
	return nil
}

func (h *hiddenViews) full() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.at) >= maxHiddenViews
}
