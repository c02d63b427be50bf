package transport

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"ckptfs/cas/remote/bucket"
)

// Range is the header of a request for n bytes at off, all that follow if n is bucket.All; "": no header.
func Range(off, n int64) string {
	switch {
	case n > 0:
		return fmt.Sprintf("bytes=%d-%d", off, off+n-1)
	case off > 0:
		return fmt.Sprintf("bytes=%d-", off)
	}
	return ""
}

// Part reads an answer to Range(off, n): the size of the object, and that of the part that was asked for.
// length is what was announced, negative if nothing was, and ranged the header Content-Range.
func Part(length int64, ranged string, off, n int64) (size, part int64, err error) {
	if length < 0 {
		return 0, 0, errors.New("the answer has no length")
	}
	if ranged == "" {
		if off > 0 || n > 0 && length > n {
			return 0, 0, errors.New("a range was asked for, and not answered with one")
		}
		return length, length, nil
	}
	var first, last int64
	if _, err := fmt.Sscanf(ranged, "bytes %d-%d/%d", &first, &last, &size); err != nil {
		return 0, 0, fmt.Errorf("range %q: %w", ranged, err)
	}
	end := size
	if n > 0 {
		end = min(off+n, size)
	}
	if first != off || last+1 != end || length != end-off {
		return 0, 0, fmt.Errorf("%d bytes, range %q: others were asked for", length, ranged)
	}
	return size, length, nil
}

// Version is an ETag without its quotes, which some engines leave out in listings.
func Version(etag string) bucket.Version { return bucket.Version(strings.Trim(etag, `"`)) }

// ETag is the header that Version was read from; "" of none.
func ETag(v bucket.Version) string {
	if v == "" {
		return ""
	}
	return `"` + string(v) + `"`
}

// Info is what the headers of an answer tell of an object, but for its size.
func Info(key string, h http.Header) bucket.Info {
	info := bucket.Info{Key: key, Version: Version(h.Get("ETag"))}
	if t, err := http.ParseTime(h.Get("Date")); err == nil {
		info.Date = t
	}
	if t, err := http.ParseTime(h.Get("Last-Modified")); err == nil {
		info.Modified = t
	}
	return info
}
