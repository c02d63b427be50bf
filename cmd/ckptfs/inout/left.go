package inout

import (
	"errors"
	"fmt"
	"io"
	"os"

	"ckptfs/cas/disk"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/inplace"
	"ckptfs/fs/tree"
)

// left is what the command prints.
type left struct {
	Dir   string         `json:"dir"`
	Store string         `json:"store"`
	Room  room           `json:"room"`
	Kept  []inplace.Kept `json:"both_kept"` // names that programs had made meanwhile, too
	*control.Left
}

// end removes the journal, and says what there is now.
func (l *leave) end(d *disk.Folder, out *left) error {
	m, err := inplace.Read(d)
	if err != nil {
		return err
	}
	if err := inplace.End(d); err != nil {
		return err
	}
	out.Kept = keptIn(m)
	stayed, err := d.ReadDir(tree.TreeDir)
	if err != nil {
		return err
	}
	aside, err := d.ReadDir(tree.LostFound)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	err = l.Show(out, func(w io.Writer) {
		l.named(out.Left)
		fmt.Fprintf(w, "%s is a plain folder; %s, %s, made plain and compared with their hashes\n", text.Printable(l.dir),
			text.Plural(int64(out.Files), "file"), text.Bytes(out.Bytes))
		if len(stayed) == 0 {
			l.keeps(w)
		}
		if len(aside) > 0 {
			fmt.Fprintf(w, "%s has what repairs moved there: look at it before that\n", text.Printable(d.Join(tree.LostFound)))
		}
	})
	if err == nil && len(stayed) > 0 {
		err = fmt.Errorf("%s has files that were made since the folder moved, or whose names it had: %q is one; `ckptfs leave %s DIR` moves them to another folder",
			l.store, stayed[0], text.Word(l.store))
	}
	return errors.Join(err, tellKept(l, l.dir, m))
}

// named names the files of which there is something to say.
func (l *leave) named(out *control.Left) {
	for _, f := range out.Damaged {
		l.Say("%s: cannot be made plain: %s", text.Printable(f.Path), text.Printable(f.Reason))
	}
	for _, p := range out.Kept {
		l.Say("%s: what was packed of it cannot be read; its local copy is the file now, not compared", text.Printable(p))
	}
	for _, p := range out.Lost {
		l.Say("%s: may have lost bytes before, which the disk did not take", text.Printable(p))
	}
	if len(out.Damaged) > 0 {
		l.Say("the store stays as it is, and can be mounted; `ckptfs check` says what to do, or remove these files")
	}
}

// gone says of a store without files where they are, if that can be seen.
func (l *leave) gone(w io.Writer) {
	names, err := os.ReadDir(l.dir)
	if err != nil || len(names) == 0 || l.dir == l.store {
		fmt.Fprintf(w, "%s has no files: nothing is to be moved\n", text.Printable(l.store))
		return
	}
	fmt.Fprintf(w, "%s is a plain folder already, and its store %s has no files: nothing is to be moved\n",
		text.Printable(l.dir), text.Printable(l.store))
	l.keeps(w)
}

// keeps says what a store is for that has no files.
func (l *leave) keeps(w io.Writer) {
	fmt.Fprintf(w, "%s keeps what was packed: `rm -r %s` removes that, once you need it no more\n",
		text.Printable(l.store), text.Word(l.store))
}
