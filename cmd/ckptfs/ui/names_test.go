package ui

import (
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"ckptfs/fs/control"
)

// A name of a million levels makes a tree of few, and its page has a URL that a browser takes.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("<b>a.", 1<<18)
	top := tree([]control.Tensor{{Name: long + "x"}, {Name: long + "y"}, {Name: "short.w"}}, "")
	linked(top.Kids, "runs/a/1/f")
	nodes := 0
	var walk func(all []*node, depth int)
	walk = func(all []*node, depth int) {
		if depth > mostLevels {
			t.Fatalf("a level %d", depth)
		}
		for _, n := range all {
			nodes++
			if len(n.URL) > 3*mostTitle {
				t.Errorf("a URL of %d bytes", len(n.URL))
			}
			walk(n.Kids, depth+1)
		}
	}
	walk(top.Kids, 0)
	if nodes > 2*mostLevels {
		t.Errorf("%d nodes", nodes)
	}
	u, err := url.Parse(tensorURL("f", long))
	if err != nil {
		t.Fatal(err)
	}
	if is := asked(u.Query()); !is(long) || is(long+"x") || is("") {
		t.Error("the URL of a long name asks for another")
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{-21238: "-20.7 KiB", -3: "-3 B", 0: "0 B", 1536: "1.50 KiB"} {
		if got := size(n); got != want {
			t.Errorf("%d bytes are %q, not %q", n, got, want)
		}
	}
}

// A command that a page shows has no byte that a person cannot see, and a shell takes it for the name that
// was meant.
func TestQuoted(t *testing.T) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	for _, s := range []string{"a", "", "a b", "it's", "\x1b[31m\n\u202e'\\x", "\xff\xfeé", "$HOME `id`",
		"�"} {
		q := quoted(s)
		for _, unseen := range []string{"\x1b", "\n", "\u202e", "\xff"} {
			if strings.Contains(q, unseen) {
				t.Errorf("%q is shown as %q", s, q)
			}
		}
		out, err := exec.Command(shell, "-c", "printf %s "+q).Output()
		if err != nil || string(out) != s {
			t.Errorf("%q is %q to a shell, as %s: %v", s, out, q, err)
		}
	}
}
