package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/index/graph/source"
)

// chains are the ancestors of all models below a path as text, without what tells two machines apart.
func (m *machine) chains(p string) (all []string) {
	m.t.Helper()
	l, err := m.Lineage(context.Background(), p)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, one := range l.Models {
		s := one.Path
		for _, a := range one.Chain[1:] {
			s += fmt.Sprintf(" < %s (%s)", a.Path, a.How)
			if a.Retired {
				s += "†"
			}
		}
		s += fmt.Sprintf(": %s, %d tensors of its own", one.How, one.Chain[0].OwnedTensors)
		all = append(all, s)
	}
	slices.Sort(all)
	return all
}

func (m *machine) has(p string, want ...string) {
	m.t.Helper()
	if got := m.chains(p); !slices.Equal(got, want) {
		m.t.Errorf("lineage of %s:\n%s\nwant\n%s", p, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// After a pull the models come from what they came from on the machine that made them: also where this one
// would have guessed otherwise, and where what they came from is not here, or comes later.
func TestLineageOfOthers(t *testing.T) {
	c := newCloud(t)
	a, b, d := c.join("a"), c.join("b"), c.join("d")
	for _, one := range [][2]string{{"z/1", "ABCD"}, {"z/2", "ABCE"}, {"ft/1", "ABFG"}} {
		a.save(one[0], one[1])
		a.lineage("runs/" + one[0] + "/m.safetensors") // they are entered one after the other
	}
	want := a.chains("runs")
	if len(want) != 3 || !strings.Contains(want[0], "inferred") {
		t.Fatalf("%q", want)
	}
	a.published("")
	// What is like it, and is not what it came from.
	b.save("mine/1", "ABFG")
	b.lineage("runs/mine/1/m.safetensors")
	b.pulled("")
	got := slices.DeleteFunc(b.chains("runs"), func(s string) bool {
		return strings.HasPrefix(s, "runs/mine")
	})
	if !slices.Equal(got, want) {
		t.Errorf("after a pull:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// One step alone, and the others later.
	d.pulled("runs/ft")
	far := d.chains("runs/ft")
	if len(far) != 1 || strings.Count(far[0], "†") != strings.Count(want[0], "<") ||
		!strings.HasPrefix(strings.ReplaceAll(far[0], "†", ""), strings.Split(want[0], ":")[0]) {
		t.Errorf("alone: %q, want %q", far, want[0])
	}
	d.again()
	d.pulled("")
	d.has("runs", want...)
	d.again()
	d.has("runs", want...)
}

// The architecture of another machine's model is known after a pull, although nothing that it was read from
// was published.
func TestGraphOfOthers(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.save("x/1", "ABC")
	if err := a.setXattr("runs/x/1/m.safetensors", source.Xattr, chainGraph("xyz", true)); err != nil {
		t.Fatal(err)
	}
	if got := a.matched("xyz"); got != "x/1 3" {
		t.Fatalf("match there: %q", got)
	}
	a.published("")
	b.pulled("")
	for range 2 {
		if got := b.matched("xyz"); got != "x/1 3" {
			t.Errorf("match: %q", got)
		}
		b.again()
	}
}

// What lineage, match, best and log tell of a run is the same where its files are stubs, and nothing of these
// is fetched for it. It stays so when the bytes come.
func TestModelsOfStubs(t *testing.T) {
	c := newCloud(t)
	a := c.join("a")
	b, count := c.joinMetered("b")
	for i, contents := range []string{"ABCD", "ABCE"} {
		step := fmt.Sprintf("z/%d", i+1)
		a.save(step, contents)
		long := strings.Repeat(" ", 4096)
		a.put("runs/"+step+"/metrics.json", fmt.Appendf(nil, `{"loss": %d%s}`, 5-i, long))
		a.lineage("runs/" + step + "/m.safetensors")
	}
	if err := a.setXattr("runs/z/1/m.safetensors", source.Xattr, chainGraph("wxyz", true)); err != nil {
		t.Fatal(err)
	}
	if got := a.matched("wxyz"); got != "z/1 4" {
		t.Fatalf("match there: %q", got)
	}
	a.published("")
	b.fetched()
	for _, step := range []string{"1", "2"} {
		b.names("runs/z/" + step)
		b.stub("runs/z/"+step+"/m.safetensors", true)
	}
	count.reset()
	told := func() string {
		t.Helper()
		l, err := b.Lineage(context.Background(), "runs/z/2/m.safetensors")
		if err != nil {
			t.Fatal(err)
		}
		var s string
		for _, m := range l.Models[0].Chain {
			s += m.Path + " (" + m.How + ") "
		}
		best, err := b.Best(context.Background(), "runs/z", "loss", "min")
		if err != nil {
			t.Fatal(err)
		}
		return s + best.Step
	}
	const want = "runs/z/2/m.safetensors (previous step) runs/z/1/m.safetensors (none) 2"
	if got := told(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	data := func(s string) bool { return strings.HasPrefix(s, "get d/") }
	if slices.ContainsFunc(count.log, data) {
		t.Errorf("fetched: %q", count.log)
	}
	if got := b.matched("wxyz"); got != "z/1 4" {
		t.Errorf("match: %q", got)
	}
	if _, err := b.Owner(context.Background(), "runs/z/2/m.safetensors", "a"); !errors.Is(err, unix.ENODATA) {
		t.Errorf("owner: %v", err)
	}
	b.pulled("")
	b.stub("runs/z/2/m.safetensors", false)
	if got := told(); got != want {
		t.Errorf("once the bytes are here: %q, want %q", got, want)
	}
	if got, there := b.chains("runs"), a.chains("runs"); !slices.Equal(got, there) {
		t.Errorf("once the bytes are here: %q, want %q", got, there)
	}
}
