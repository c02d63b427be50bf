package volume

import "testing"

// A folder, or a link, that a program removed and made again is published where others removed it meanwhile,
// though it looks as it did.
func TestMadeAgainWhereOthersRemoved(t *testing.T) {
	for what, makes := range map[string]func(m *machine){
		"folder": func(m *machine) { m.mkdir("runs/x/1/d") },
		"link":   func(m *machine) { m.symlink("f", "runs/x/1/d") },
	} {
		t.Run(what, func(t *testing.T) {
			c := newCloud(t)
			a, b := c.join("a"), c.join("b")
			defer func() { a.close(); b.close() }()
			a.mkdir("runs/x/1")
			a.write("runs/x/1/f", []byte("kept"))
			makes(a)
			pushes(a)
			pullsPacked(b)
			removes := func(m *machine) {
				if what == "link" {
					m.unlink("runs/x/1/d")
					return
				}
				m.rmdir("runs/x/1/d")
			}
			removes(a)
			removes(b)
			pushes(b)
			looks(a)
			makes(a)
			for range 2 {
				for _, m := range []*machine{a, b} {
					pushes(m)
					pullsPacked(m)
				}
			}
			if !a.exists("runs/x/1/d") || !b.exists("runs/x/1/d") {
				t.Errorf("who made it has it: %t, the other: %t", a.exists("runs/x/1/d"), b.exists("runs/x/1/d"))
			}
		})
	}
}
