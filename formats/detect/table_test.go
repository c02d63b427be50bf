package detect

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ckptfs/formats"
)

// TestTableComplete holds that each parser and each sidecar of the packages below formats is in the table.
func TestTableComplete(t *testing.T) {
	listed := map[string]bool{}
	for _, f := range table {
		for _, v := range []any{f.Parser, f.Sidecar} {
			if v != nil {
				listed[strings.TrimPrefix(reflect.TypeOf(v).PkgPath(), "ckptfs/formats/")+"."+
					reflect.TypeOf(v).Name()] = true
			}
		}
	}
	found := map[string]bool{}
	err := filepath.WalkDir("..", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(p) != ".go" || strings.HasSuffix(p, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if name := laysOut(d); ast.IsExported(name) {
				found[filepath.ToSlash(strings.TrimPrefix(filepath.Dir(p), "../"))+"."+name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(found, listed) {
		t.Errorf("below formats there are\n%v,\nthe table has\n%v", slices.Sorted(maps.Keys(found)),
			slices.Sorted(maps.Keys(listed)))
	}
}

// laysOut returns the type that d is the method Parse of a formats.Parser of, or the method Of of a
// formats.Sidecar; or "".
func laysOut(d ast.Decl) string {
	f, ok := d.(*ast.FuncDecl)
	if !ok || f.Recv == nil || f.Type.Results == nil {
		return ""
	}
	id, ok := f.Recv.List[0].Type.(*ast.Ident)
	if !ok {
		return ""
	}
	switch star, _ := f.Type.Results.List[0].Type.(*ast.StarExpr); {
	case f.Name.Name == "Of" && len(f.Type.Results.List) == 2:
		return id.Name
	case f.Name.Name == "Parse" && star != nil:
		if x, ok := star.X.(*ast.SelectorExpr); ok && x.Sel.Name == "Layout" {
			return id.Name
		}
	}
	return ""
}

// TestTable holds what must be true of each format's entry.
func TestTable(t *testing.T) {
	names := map[string]bool{"blob": true}
	for _, f := range table {
		if f.Parser == nil && f.Sidecar == nil || (f.Parser == nil) != (f.Sniff == nil) {
			t.Errorf("%v: without parser or sniffer", f.Names)
		}
		if len(f.Names) == 0 {
			t.Errorf("%T: no names", f.Parser)
		}
		for _, n := range f.Names {
			if names[n.Name] {
				t.Errorf("two formats are called %s", n.Name)
			}
			names[n.Name] = true
		}
		for _, e := range slices.Concat(f.Endings, f.Views) {
			if !strings.HasPrefix(e, ".") {
				t.Errorf("%v: ending %q", f.Names, e)
			}
		}
	}
}

// TestTableFixtures holds that a file of each name is known, by itself or with what lies beside it.
func TestTableFixtures(t *testing.T) {
	listed := map[string]bool{}
	for _, f := range table {
		for _, n := range f.Names {
			listed[n.Name] = true
		}
	}
	missing := maps.Clone(listed)
	look := func(p string, b []byte) {
		l, err := top.Named(filepath.Base(p), bytes.NewReader(b), int64(len(b)),
			func(name string) (io.ReaderAt, int64, func(), error) {
				b, err := os.ReadFile(filepath.Join(filepath.Dir(p), name))
				return bytes.NewReader(b), int64(len(b)), func() {}, err
			})
		if err != nil {
			t.Errorf("%s: %v", p, err)
			return
		}
		if l.Format != formats.BlobLayout(0).Format && !listed[l.Format] {
			t.Errorf("%s: format %s is not in the table", p, l.Format)
		}
		delete(missing, l.Format)
	}
	err := filepath.WalkDir(testdata, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		if err == nil {
			look(p, b)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	look("model.txt", []byte("tree\nversion=v4\nnum_class=1\n"))
	if len(missing) > 0 {
		t.Errorf("no fixture is recognised as %v", slices.Sorted(maps.Keys(missing)))
	}
}

// TestTableDocumented holds that docs/formats.md names each format's package and the endings of its files.
func TestTableDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range table {
		of := reflect.TypeOf(f.Sidecar)
		if f.Parser != nil {
			of = reflect.TypeOf(f.Parser)
		}
		for _, word := range slices.Concat([]string{filepath.Base(of.PkgPath())}, f.Endings, f.Views) {
			if !bytes.Contains(b, []byte("`"+word+"`")) {
				t.Errorf("docs/formats.md does not name `%s`", word)
			}
		}
	}
}
