package control

import (
	"encoding/json"
	"io"
	"net/http"
)

// Passes takes a file's tensors, some at a time, in order: a file may have a million. An error of it ends the
// request. Where it is nil, they are in the File.
type Passes func([]Tensor) error

// give hands over what came in one piece.
func (p Passes) give(f *File) error {
	if p == nil {
		return nil
	}
	all := f.Tensors
	f.Tensors = nil
	return p(all)
}

// fileWriter writes a File as one JSON object. The tensors come first in it, so that they need not be there
// all at once.
type fileWriter struct {
	w   io.Writer
	enc *json.Encoder // of w
	n   int           // tensors
}

func (f *fileWriter) take(tensors []Tensor) error {
	for i := range tensors {
		before := ","
		if f.n == 0 {
			before = `{"tensors":[`
		}
		if _, err := io.WriteString(f.w, before); err != nil {
			return err
		}
		if err := f.enc.Encode(&tensors[i]); err != nil {
			return err
		}
		f.n++
	}
	return nil
}

// told is a File as it travels, which may end early.
type told struct {
	*File
	Error *Error `json:"error,omitempty"`
}

// rest is what of a File is not its tensors.
type rest struct {
	told
	Tensors *struct{} `json:"tensors,omitempty"` // it hides the others
}

// end writes the rest, or why it ends here.
func (f *fileWriter) end(file *File, err error) error {
	if file == nil {
		file = &File{}
	}
	r := rest{told: told{File: file}}
	if err != nil {
		r.Error = AsError(err)
	}
	p, err := json.Marshal(r)
	if err == nil {
		_, err = f.w.Write(append([]byte("],"), append(p[1:], '\n')...))
	}
	return err
}

// show answers with one JSON object, as every version of ckptfs reads it.
func (h *Handler) show(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	out := &fileWriter{w: w, enc: json.NewEncoder(w)}
	p, err := pathOf(r)
	var f *File
	if err == nil {
		f, err = h.vol.Show(r.Context(), p, out.take)
	}
	switch {
	case out.n > 0:
		_ = out.end(f, err) // a write that fails means that the caller has gone
	case err != nil:
		writeError(w, AsError(err))
	default:
		if f.Tensors == nil {
			f.Tensors = []Tensor{}
		}
		_ = out.enc.Encode(f)
	}
}
