package zarr

import (
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"

	"ckptfs/formats"
)

// stream is the elements of a chunk, read forwards. Neither raw nor src: zeros.
type stream struct {
	raw    io.ReaderAt // of one that is not compressed
	src    io.Reader   // of one that is
	at     int64       // bytes of src that were read
	size   int64       // of the chunk
	memory int64
	close  func()
}

// read reads from byte off on, which is not before what was read.
func (s *stream) read(p []byte, off int64) error {
	switch {
	case s.raw != nil:
		return formats.ReadFull(s.raw, p, off)
	case s.src == nil:
		clear(p)
		return nil
	}
	if _, err := io.CopyN(io.Discard, s.src, off-s.at); err != nil {
		return short(err)
	}
	if _, err := io.ReadFull(s.src, p); err != nil {
		return short(err)
	}
	s.at = off + int64(len(p))
	return nil
}

func short(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return reject("it is cut short")
	}
	return decoding(err)
}

// decoding tells what is wrong with compressed bytes from what is wrong with reading them.
func decoding(err error) error {
	var reading *readError
	if errors.As(err, &reading) {
		return reading.err
	}
	return reject("%v", err)
}

// end is called when all that is wanted was read: where that is the chunk's end, nothing may follow.
func (s *stream) end() error {
	if s.src == nil || s.at < s.size {
		return nil
	}
	var b [1]byte
	if n, err := io.ReadFull(s.src, b[:]); n > 0 {
		return reject("more than %d bytes", s.size)
	} else if err != io.EOF {
		return decoding(err)
	}
	return nil
}

// readError marks an error of what is read, so that it is not taken for one of decoding.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }
func (e *readError) Unwrap() error { return e.err }

type marked struct{ io.Reader }

func (m marked) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = &readError{err}
	}
	return n, err
}

// decode makes the stream that of n bytes of src.
func (s *stream) decode(codec string, src io.ReaderAt, n int64) error {
	in := marked{io.NewSectionReader(src, 0, n)}
	s.memory = overhead
	switch codec {
	case "":
		if n != s.size {
			return reject("%d bytes, want %d", n, s.size)
		}
		s.raw = src
	case "gzip", "zlib":
		var err error
		if codec == "gzip" {
			s.src, err = gzip.NewReader(in)
		} else {
			s.src, err = zlib.NewReader(in)
		}
		if err != nil {
			return short(err)
		}
	default:
		head := make([]byte, min(n, zstd.HeaderMaxSize))
		if err := formats.ReadFull(src, head, 0); err != nil {
			return err
		}
		var h zstd.Header
		if err := h.Decode(head); err != nil {
			return short(err)
		}
		window := max(zstd.MinWindowSize, h.WindowSize)
		if h.SingleSegment {
			window = max(window, h.FrameContentSize)
		}
		if window > maxWindow {
			return unread("compressed with a window of %d bytes", window)
		}
		s.memory += int64(window)
		// of all frames
		d, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(window))
		if err != nil {
			return short(err)
		}
		s.src, s.close = d, d.Close
	}
	return nil
}
