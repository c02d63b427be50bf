package formats

import "io"

// ReadFull fills p from r at off. A file that ends before p is full is io.ErrUnexpectedEOF: parsers ask only for bytes
// below the size they were given, so the file changed under them, which is an error of r's and no fact of the format.
func ReadFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
