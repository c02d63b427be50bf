package volume

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTransferRenamed: a child by transfer owns what differs and no more, whatever its layers are called. The
// layers are matched by the architectures, also when these come late, or by lineage.json.
func TestTransferRenamed(t *testing.T) {
	r := newRig(t)
	save := func(step string, tensors string) { // "a=X": a.w has the content X
		t.Helper()
		var names []string
		var data [][]byte
		for _, x := range strings.Fields(tensors) {
			names, data = append(names, x[:1]+".w"), append(data, random(70<<10, uint64(x[2])))
		}
		r.mkdir(step)
		r.write(step+"/m.safetensors", weights(t, names, data...))
		r.sync()
	}
	arch := func(layers string) string { // "a:op": a layer with tensor a.w
		var nodes []string
		for i, x := range strings.Fields(layers) {
			in := ""
			if i > 0 {
				in = fmt.Sprintf(`,"in":["n%d"]`, i-1)
			}
			nodes = append(nodes, fmt.Sprintf(`{"id":"n%d","op":%q,"params":["%c.w"]%s}`, i, x[2:], x[0], in))
		}
		return `{"v":1,"nodes":[` + strings.Join(nodes, ",") + `]}`
	}
	r.mkdir("runs/a/1")
	r.write("runs/a/1/arch.json", []byte(arch("a:stem b:body c:head")))
	save("runs/a/1", "a=A b=B c=C")
	// The first two layers, and one more before the head: what was a is called b now, and what was b is d.
	const content = "a=N b=A c=M d=B"
	longer := arch("b:stem d:body a:new c:head")
	renamed := `{"parent": "runs/a/1", "how": "transfer", "tensors": {"b.w": "a.w", "d.w": "b.w"}}`
	for _, c := range []struct{ run, lineage, arch, lateLineage, lateArch string }{
		{"graphs", `{"parent": "runs/a/1", "how": "transfer"}`, longer, "", ""},
		{"declared", renamed, "", "", ""},
		{"lategraph", `{"parent": "runs/a/1", "how": "transfer"}`, "", "", longer},
		{"latedeclared", `{"parent": "runs/a/1", "how": "transfer"}`, "", renamed, ""},
	} {
		step := "runs/" + c.run + "/1"
		r.mkdir(step)
		write := func(name, text string) {
			if text != "" {
				r.write(step+"/"+name, []byte(text))
			}
		}
		write("lineage.json", c.lineage)
		write("arch.json", c.arch)
		save(step, content)
		if c.lateLineage != "" || c.lateArch != "" {
			r.wantChain(step, c.run+"/1 transfer 4; a/1 none 0")
			write("lineage.json", c.lateLineage)
			write("arch.json", c.lateArch)
		}
		want := c.run + "/1 transfer 2; a/1 none 2"
		r.wantChain(step, want)
		if o, err := r.Owner(context.Background(), step, "d.w"); err != nil || o.Owner.Path != "runs/a/1/m.safetensors" {
			t.Errorf("%s: %+v, %v", c.run, o, err)
		}
	}
	r.sync()
	r = r.withoutIndex()
	for _, run := range []string{"graphs", "declared", "lategraph", "latedeclared"} {
		r.wantChain("runs/"+run+"/1", run+"/1 transfer 2; a/1 none 2")
	}
}

// TestInvalidMetadata: an attribute of a step that can never mean anything is refused. The status lists what
// else is wrong with a step.
func TestInvalidMetadata(t *testing.T) {
	r := newRig(t)
	r.save("a/1", "AB")
	set := func(p, name, value string) error {
		n := r.find(p)
		defer r.forget(n)
		return r.SetXattr(n, name, []byte(value), 0)
	}
	status := func() string {
		t.Helper()
		st, err := r.Status(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(st.Sidecars, "\n")
	}
	for _, c := range []struct{ name, value string }{
		{"user.parent", "../../../../etc"}, {"user.parent", "/etc"}, {"user.parent", "models/x"},
		{"user.parent", "."}, {"user.parent", "runs/a/1"}, {"user.parent", "runs/b/\xff"},
		{"user.parent", "runs/" + strings.Repeat("x", 5000)}, {"user.metric.acc", "good"},
		{"user.metric.acc", ""}, {"user.metric.acc", strings.Repeat("1", 200)},
		{"user.metric.a\tb", "1"}, {"user.metric.\xff", "1"}, {"user.metric.", "1"},
	} {
		wantErr(t, c.name+"="+c.value, set("runs/a/1", c.name, c.value), unix.EINVAL)
		if got := status(); !strings.HasPrefix(got, "runs/a/1 "+c.name+": ") {
			t.Errorf("%s=%q: status %q", c.name, c.value, got)
		}
		// the host's limit
		if err := set("runs/a/1/m.safetensors", c.name, c.value); err != nil && len(c.value) < 2048 {
			t.Errorf("%s=%.40q of a file: %v", c.name, c.value, err)
		}
	}
	for _, c := range []struct{ name, value string }{
		{"user.parent", "runs/b/7\n"}, {"user.parent", "../9"}, {"user.parent", ""},
		{"user.metric.acc", " 0.5\n"}, {"user.metric.acc", "nan"}, {"user.other", "good"},
	} {
		if err := set("runs/a/1", c.name, c.value); err != nil {
			t.Errorf("%s=%q: %v", c.name, c.value, err)
		}
	}
	// What comes another way is in the status once the step is looked at.
	r.mkdir("elsewhere")
	if err := set("elsewhere", "user.metric.acc", "good"); err != nil {
		t.Error(err)
	}
	r.write("elsewhere/m.safetensors", modelFile(t, "AC"))
	r.rename("elsewhere", "runs/a/2")
	r.sync()
	r.wantChain("runs/a/2", "a/2 previous step 1; a/1 none 1")
	if got := status(); !strings.Contains(got, `runs/a/2: attribute user.metric.acc: "good" is not a number`) {
		t.Errorf("status %q", got)
	}
}
