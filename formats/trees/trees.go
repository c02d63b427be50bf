// Package trees recognises the models of boosted trees that grow from save to save: XGBoost's and LightGBM's.
//
// Such a file is one document, in which a later save of the same training has all trees of the earlier one,
// byte for byte, behind a head that has changed a little (counts, lists of rounds) and before new trees and a
// tail:
//
//	| head | tree 0 | tree 1 | … | tree n-1 | tail |
//	| head' | tree 0 | tree 1 | … | tree n-1 | tree n | … | tail' |
//
// A tree is some hundred bytes to some ten thousand, too little for an object of its own, whose entry in a
// manifest would be a good part of it and would be written again by each save. So the file is one Blob and
// the layout is Fine: it is cut by content into chunks of some 4 KiB, and these are grouped by content into
// lists. What a save costs is its new trees, the one or two chunks before them, the head and the tail, and
// the lists and the manifest that name those; the rest is found.
//
// # What is recognised
//
//	xgboost-json   Booster.save_model("x.json"):  {"learner":{ … }, as XGBoost 1.0 and later write it
//	xgboost-ubj    Booster.save_model("x.ubj"):   {L 0000000000000007 learner{ … }, Universal Binary JSON,
//	                                              XGBoost 1.6 and later
//	lightgbm       Booster.save_model("x.txt"):   tree\nversion=v
//
// White space before or inside of these is not expected. Nothing else is looked at but the last byte: there
// is no harm in a document that only begins so. XGBoost's deprecated binary format, with its fixed-size
// nodes, is not recognised. The parser takes 64 bytes.
package trees

import (
	"fmt"
	"io"
	"strings"

	"ckptfs/formats"
)

// kind is one of the documents.
type kind struct{ name, start, end string }

var kinds = []kind{
	{"xgboost-json", `{"learner":{`, "}"},
	{"xgboost-ubj", "{L\x00\x00\x00\x00\x00\x00\x00\x07learner{", "}"},
	{"lightgbm", "tree\nversion=v", "\n"},
}

// longest is the length of the longest start.
const longest = 32

func note(by string) string {
	return "a model of boosted trees by " + by +
		", stored in chunks by content: it holds no tensors, and trees have no names"
}

// Format is the entry of tree models in the table of formats.
var Format = formats.Format{
	Parser: Parser{},
	Sniff:  Sniff,
	Names: []formats.Name{
		{Name: kinds[0].name, Note: note("XGBoost")},
		{Name: kinds[1].name, Note: note("XGBoost")},
		{Name: kinds[2].name, Note: note("LightGBM")},
	},
}

// Parser is the parser of tree models.
type Parser struct{}

// Name returns "trees". The layouts have the names of the kinds.
func (Parser) Name() string { return "trees" }

func reject(format string, args ...any) error {
	return fmt.Errorf("trees: %w: %s", formats.ErrNotFormat, fmt.Sprintf(format, args...))
}

func find(p []byte) *kind {
	for i := range kinds {
		if strings.HasPrefix(string(p[:min(len(p), longest)]), kinds[i].start) {
			return &kinds[i]
		}
	}
	return nil
}

// Sniff reports whether a file that starts with p may be one.
func Sniff(p []byte, _ int64) bool { return find(p) != nil }

// Parse returns the layout of a tree model.
func (Parser) Parse(r io.ReaderAt, size int64) (*formats.Layout, error) {
	head := make([]byte, min(size, longest))
	if err := formats.ReadFull(r, head, 0); err != nil {
		return nil, err
	}
	k := find(head)
	if k == nil {
		return nil, reject("no start that is known")
	}
	var last [1]byte
	if err := formats.ReadFull(r, last[:], size-1); err != nil {
		return nil, err
	}
	if string(last[:]) != k.end {
		return nil, reject("%s: ends with %q", k.name, last)
	}
	l := formats.BlobLayout(size)
	l.Format, l.Fine = k.name, true
	return l, nil
}
