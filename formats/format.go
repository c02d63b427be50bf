package formats

import "io"

// Format is all that the project has to know of one checkpoint format in order to recognise and show it. The
// format's package exports its Format, and formats/detect lists it in its table.
type Format struct {
	// Parser recognises the files. nil: no file is known by its own bytes alone; see Sidecar.
	Parser Parser
	// Sniff reports whether a file of size bytes that starts with prefix may be one of the format. It errs
	// towards yes: a file that it says no to is none. nil exactly where Parser is.
	Sniff func(prefix []byte, size int64) bool
	// Names are what Layout.Format may be.
	Names []Name
	// Endings of file names (".npy") by which one expects the format: of such a file that is none, detect.Why
	// gives the parser's reason. What several formats claim is expected of the first whose Sniff accepts the
	// file.
	Endings []string
	// Views are the endings of the files that may have a safetensors view beside them, best first. Where the
	// views of two files would have one name, the format that comes first in the table has it.
	Views []string
	// Presume, if not nil, tells what a file is whose format grows from save to save, by its first and last
	// bytes. as returns the layout that the file has if most of its bytes stood in an earlier file of a
	// format that was one Blob. It is nil, or returns nil, where that cannot be said.
	Presume func(r io.ReaderAt, size int64) (as func(format string) *Layout, err error)
	// Sidecar, if not nil, lays out files of raw bytes that a file of this format describes.
	Sidecar Sidecar
}

// Name is what a Layout calls its format, as `ckptfs show` prints it, and what is true of all files of that
// name.
type Name struct {
	Name string
	// Note says why a file lists fewer tensors than one may look for. It is for people to read.
	Note string
	// Ordered: the tensors come in the order in which the program put them into the file, which for a state
	// dict is the order of the model's modules.
	Ordered bool
}

// Detect returns the layout of the size bytes of r, of whatever format.
type Detect func(r io.ReaderAt, size int64) (*Layout, error)

// Archive is the Parser of files in which other files lie.
type Archive interface {
	Parser
	// Within returns the parser that asks detect for the layout of each file inside.
	Within(detect Detect) Parser
}

// Sidecar lays out files of raw bytes by another file in their folder, which describes them.
type Sidecar interface {
	// Of returns the name of the file that describes one of this name, or "". sure says that files of this
	// name are nothing else.
	Of(name string) (by string, sure bool)
	// Layout is the layout of the file of this name and of size bytes, by the bySize bytes of the file that
	// describes it. Errors are as Parser's.
	Layout(name string, size int64, by io.ReaderAt, bySize int64) (*Layout, error)
}
