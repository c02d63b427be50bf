// Package remote is a store that several machines share: a prefix of a bucket. This package has what names
// one (Address), what is at its root (Format), and what a local store knows of it (Joined); bucket is the
// seam to the engine that holds it, and record the formats of its objects.
//
//	PREFIX/format         text, made once, never changed
//	PREFIX/heads/WRITER   one for each local store that publishes, the only one that it overwrites
//	PREFIX/probe/…        what probes put, and remove
//
// # The format object
//
// Lines of a word, a space and a value, in this order:
//
//	ckptfs-remote 1
//	id 0f1e2d3c4b5a69788796a5b4c3d2e1f0       16 random bytes
//	created 2026-07-01T12:00:00Z
//	sum 00112233445566778899aabbccddeeff      the first 16 bytes of the BLAKE3 of the lines before
//
// # STORE/remote
//
// Lines like these; there is nothing secret in it. Those whose values are empty are left out:
//
//	ckptfs-joined 1
//	url s3://models/team
//	endpoint https://s3.example.org
//	region eu-central-1
//	path-style yes
//	profile training
//	id 0f1e2d3c4b5a69788796a5b4c3d2e1f0       that of the format object
//	writer gpu-17.5f4e3d2c
//
// A store that only reads has the writer "-". One that reads over plain HTTP has the URL https://… for that,
// and no endpoint.
package remote

import (
	"fmt"
	"strings"

	"ckptfs/cas"
)

// field is a line of a text.
type field struct{ name, value string }

func appendFields(p []byte, fields []field) []byte {
	for _, f := range fields {
		if f.value != "" {
			p = fmt.Appendf(p, "%s %s\n", f.name, f.value)
		}
	}
	return p
}

// parseFields reads lines whose names are among want, in that order and each once at most.
func parseFields(of string, p []byte, want ...string) (map[string]string, error) {
	corrupt := func(line string) error {
		return fmt.Errorf("%s: line %q is not understood: %w", of, line, cas.ErrCorrupt)
	}
	got := map[string]string{}
	text, ended := strings.CutSuffix(string(p), "\n")
	if !ended {
		return nil, fmt.Errorf("%s: cut short: %w", of, cas.ErrCorrupt)
	}
	next := 0
	for line := range strings.SplitSeq(text, "\n") {
		name, value, ok := strings.Cut(line, " ")
		for next < len(want) && want[next] != name {
			next++
		}
		if !ok || value == "" || next == len(want) || strings.ContainsFunc(value, unprintable) {
			return nil, corrupt(line)
		}
		got[name] = value
		next++
	}
	return got, nil
}

func unprintable(r rune) bool { return r < ' ' || r > '~' }

// version checks the first line of a text.
func version(of string, fields map[string]string, name string) error {
	switch fields[name] {
	case "1":
		return nil
	case "":
		return fmt.Errorf("%s: no %s: %w", of, name, cas.ErrCorrupt)
	}
	return fmt.Errorf("%s: version %s: %w", of, fields[name], cas.ErrNewer)
}
