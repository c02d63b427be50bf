package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What a package and a type may hold: a package of more lines, or a type of more fields and methods, is
// several things. What a struct embeds counts as one field, and its methods do not count: it is a part with a
// name of its own. Lines are all lines of the package's files, comments too; tests and generated files do not
// count.
const (
	mostLines   = 5000
	mostFields  = 25
	mostMethods = 60
)

// extent is what the test counts: of a package its lines, of a type its fields and its methods.
type extent struct{ lines, fields, methods int }

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// No package and no type is too large to be read.
func TestSizes(t *testing.T) {
	for _, p := range list(t) {
		for name, s := range sizes(t, inside(p.ImportPath), p.Dir) {
			if s.lines > mostLines || s.fields > mostFields || s.methods > mostMethods {
				t.Errorf("%s has %d lines, %d fields and %d methods, of at most %d, %d and %d", name,
					s.lines, s.fields, s.methods, mostLines, mostFields, mostMethods)
			}
		}
	}
}

// sizes counts a package's lines, and the fields and methods of each of its types, on all platforms together.
func sizes(t *testing.T, pkg, dir string) map[string]extent {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]extent{}
	methods := map[string]bool{} // twins for other platforms are one method
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") || generated.Match(src) {
			continue
		}
		s := counted[pkg]
		s.lines += bytes.Count(src, []byte("\n"))
		counted[pkg] = s
		f, err := parser.ParseFile(token.NewFileSet(), file, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					continue
				}
				name := pkg + "." + receiver(d.Recv.List[0].Type)
				if !methods[name+"."+d.Name.Name] {
					methods[name+"."+d.Name.Name] = true
					s := counted[name]
					s.methods++
					counted[name] = s
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if ts, ok := spec.(*ast.TypeSpec); ok {
						name := pkg + "." + ts.Name.Name
						s := counted[name]
						switch typ := ts.Type.(type) {
						case *ast.StructType:
							s.fields = max(s.fields, entries(typ.Fields))
						case *ast.InterfaceType:
							s.methods = max(s.methods, entries(typ.Methods))
						}
						counted[name] = s
					}
				}
			}
		}
	}
	return counted
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// entries counts the fields of a struct or the methods of an interface; what is embedded is one.
func entries(l *ast.FieldList) int {
	n := 0
	for _, f := range l.List {
		n += max(1, len(f.Names))
	}
	return n
}
