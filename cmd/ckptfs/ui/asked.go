package ui

import (
	"net/url"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"ckptfs/fs/control"
)

// pathKeys are the names of values that are paths in the mount; that of a run is one below runs/.
var pathKeys = []string{"path", "a", "b", "file", "run"}

const (
	// longestPath and longestName are what Linux has of a path and of a name in it, in bytes.
	longestPath, longestName = 4095, 255
)

// A form's value is text. A path that is not UTF-8 is asked for by a form under a key with escapedKey behind
// it, and is escaped as in a URL.
const escapedKey = "%"

func fieldKey(key, value string) string {
	if utf8.ValidString(value) {
		return key
	}
	return key + escapedKey
}

func fieldValue(value string) string {
	if utf8.ValidString(value) {
		return value
	}
	return url.PathEscape(value)
}

// unescape has asked say the paths that a form escaped as they are, and reports whether there were any.
func unescape(asked url.Values) (any bool) {
	for _, key := range pathKeys {
		for _, v := range asked[key+escapedKey] {
			if p, err := url.PathUnescape(v); err == nil {
				asked.Add(key, p)
				any = true
			}
		}
		asked.Del(key + escapedKey)
	}
	return any
}

// refuse is why the paths that a URL or a form asks for are refused: none leads out of the mount, also none
// of a command that a page prints.
func refuse(asked url.Values) error {
	for _, key := range pathKeys {
		for _, p := range asked[key] {
			if err := refusePath(p); err != nil {
				return err
			}
		}
	}
	return nil
}

func refusePath(p string) error {
	if len(p) > longestPath {
		return control.Invalid("%s has %s bytes: a path has at most %s bytes", shown(p),
			humanize.Comma(int64(len(p))), humanize.Comma(longestPath))
	}
	if strings.ContainsRune(p, 0) {
		return control.Invalid("%s has a zero byte, and no path has one", shown(p))
	}
	depth := 0
	for name := range strings.SplitSeq(p, "/") {
		switch {
		case len(name) > longestName:
			return control.Invalid("%s has %s bytes: a name has at most %d bytes", shown(name),
				humanize.Comma(int64(len(name))), longestName)
		case name == "..":
			depth--
		case name != "" && name != ".":
			depth++
		}
		if depth < 0 {
			return control.Invalid("%s leads out of the mount: a path begins at its root, as in runs/a/3", shown(p))
		}
	}
	p = strings.Trim(p, "/")
	if clean := path.Clean("/" + p)[1:]; clean != p {
		return control.Invalid("%s is spelt another way: %s is the path", shown(p), shown(clean))
	}
	return nil
}
