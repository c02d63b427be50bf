package plans

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ckptfs/formats/deepspeed"
)

// step are the files of a step of ZeRO, as bytes, what they say, and their names.
func step(t *testing.T, name string) (files []file, say []*deepspeed.File, names []string) {
	t.Helper()
	all, err := filepath.Glob("../../formats/testdata/zero/" + name + "/*")
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	for _, p := range all {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		f, err := deepspeed.Parse(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file{&Source{Layout: f.Layout}, b})
		say, names = append(say, f), append(names, filepath.Base(p))
	}
	return files, say, names
}

func said(say []*deepspeed.File) (out []*Source) {
	for _, f := range say {
		out = append(out, &Source{Layout: f.Layout, DeepSpeed: f})
	}
	return out
}

// What ranks of ZeRO wrote in parts is one file, as DeepSpeed puts it together.
func TestConsolidateZero(t *testing.T) {
	for _, name := range []string{"stage1", "stage2", "stage3"} {
		files, say, names := step(t, name)
		p, err := ConsolidateZero(said(say), names)
		if err != nil {
			t.Fatal(err)
		}
		over(p, files...).saved(t, "zero "+name)
	}
}

// A step that is not whole, or whose files are others, is refused.
func TestConsolidateZeroRefuses(t *testing.T) {
	for _, name := range []string{"stage1", "stage2", "stage3"} {
		for i := range 3 {
			_, say, names := step(t, name)
			_, err := ConsolidateZero(said(slices.Delete(say, i, i+1)), slices.Delete(names, i, i+1))
			refused(t, name+" without "+names[i], err)
		}
	}
	for what, change := range map[string]func(say []*deepspeed.File, names []string){
		"another layout":  func(_ []*deepspeed.File, names []string) { names[0] = "expert_0" + deepspeed.ModelSuffix },
		"two of one rank": func(_ []*deepspeed.File, names []string) { names[1] = names[0] },
		"exchanged names": func(_ []*deepspeed.File, names []string) {
			last := len(names) - 1
			names[0], names[last] = names[last], names[0]
		},
		"a longer tensor":  func(say []*deepspeed.File, _ []string) { firstModel(say).Groups[0][1].Shape[0]++ },
		"a shorter tensor": func(say []*deepspeed.File, _ []string) { firstModel(say).Groups[0][1].Shape = []int64{1} },
		"a huge tensor":    func(say []*deepspeed.File, _ []string) { firstModel(say).Groups[0][1].Shape = []int64{1 << 61} },
		"a group less":     func(say []*deepspeed.File, _ []string) { firstModel(say).Groups = firstModel(say).Groups[:1] },
		"a frozen one":     func(say []*deepspeed.File, _ []string) { firstModel(say).Frozen[0].Shape[0]++ },
		"another part":     func(say []*deepspeed.File, _ []string) { say[0].Optimizer.Flat[0].Shape[0]-- },
		"no part":          func(say []*deepspeed.File, _ []string) { say[0].Optimizer.Flat[1].Shape[0] = 0 },
		"another stage":    func(say []*deepspeed.File, _ []string) { say[1].Optimizer.Stage ^= 1 },
		"integers":         func(say []*deepspeed.File, _ []string) { say[1].Optimizer.Flat[0].DType = "I32" },
	} {
		for _, name := range []string{"stage2", "stage3"} {
			_, say, names := step(t, name)
			change(say, names)
			_, err := ConsolidateZero(said(say), names)
			refused(t, name+": "+what, err)
		}
	}
	_, say, names := step(t, "stage2")
	say[0].Optimizer.Paddings[1][0] = 1 << 40
	_, err := ConsolidateZero(said(say), names)
	refused(t, "elements behind the end", err)
}

// firstModel is that of the first rank.
func firstModel(say []*deepspeed.File) *deepspeed.Model {
	return say[slices.IndexFunc(say, func(f *deepspeed.File) bool { return f.Model != nil })].Model
}

// A name that shares its values with none that is there is left out, as DeepSpeed does.
func TestConsolidateZeroShares(t *testing.T) {
	files, say, names := step(t, "stage2")
	firstModel(say).Shared = [][2]string{{"a", "nothing"}, {"b", "emb.weight"}}
	p, err := ConsolidateZero(said(say), names)
	if err != nil {
		t.Fatal(err)
	}
	all := string(over(p, files...).all(t))
	if strings.Contains(all, `"a":`) || !strings.Contains(all, `"b":`) || strings.Contains(all, "head") {
		t.Errorf("%.300q", all)
	}
}
