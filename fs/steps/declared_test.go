package steps

import "testing"

func TestCheckAttr(t *testing.T) {
	tests := []struct {
		path  string
		dir   bool
		name  string
		value string
		ok    bool
	}{
		{"runs/a/1", true, "user.metric.loss", "0.5", true},
		{"runs/a/1", true, "user.metric.loss", "low", false},
		{"runs/a/1", true, "user.metric.", "0.5", false},
		{"runs/a/1", true, "user.other", "low", true},
		{"runs/a/1", true, ParentXattr, "", true},
		{"runs/a/1", true, ParentXattr, "runs/b/7\n", true},
		{"runs/a/1", true, ParentXattr, "/mnt/runs/b/7", true},
		{"runs/a/1", true, ParentXattr, "/elsewhere/runs/b/7", false},
		{"runs/a/1", true, ParentXattr, "../2", true},
		{"runs/a/1.pt", false, ParentXattr, "./2.pt", true},
		{"runs/a/1.pt", false, ParentXattr, "../../../../2.pt", false},
		{"runs/a/1/model.pt", false, "user.metric.loss", "low", true}, // a file of a step
		{"runs/a", true, "user.metric.loss", "low", true},
		{"other/a/1", true, "user.metric.loss", "low", true},
	}
	for _, c := range tests {
		if err := CheckAttr(c.path, c.dir, c.name, []byte(c.value), "/mnt"); (err == nil) != c.ok {
			t.Errorf("%s of %s = %q: %v", c.name, c.path, c.value, err)
		}
	}
}
