package record

import (
	"fmt"
	"strings"

	"ckptfs/cas"
)

// Writer is the name of one that publishes.
type Writer string

// The writers that have no digits in their names.
const (
	IndexWriter   Writer = "@index"   // the index of what the remote has
	ArchiveWriter Writer = "@archive" // what writers left that are idle
	ExportsWriter Writer = "@exports" // what was exported
)

// IsStore reports whether w, which is a writer, is a local store.
func (w Writer) IsStore() bool { return !strings.HasPrefix(string(w), "@") }

const (
	maxName  = 40
	idDigits = 8
	digits   = "0123456789abcdef"
	nameable = "abcdefghijklmnopqrstuvwxyz0123456789-"
)

// Check returns an error unless w is a writer's name.
func (w Writer) Check() error {
	if w == IndexWriter || w == ArchiveWriter || w == ExportsWriter {
		return nil
	}
	name, id, _ := strings.Cut(string(w), ".")
	if len(name) < 1 || len(name) > maxName || len(id) != idDigits ||
		strings.Trim(name, nameable) != "" || strings.Trim(id, digits) != "" {
		return fmt.Errorf("%.60q is no writer: %w", string(w), cas.ErrCorrupt)
	}
	return nil
}
