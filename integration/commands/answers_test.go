package commands

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// TestAnswers: a path that does not exist, and one at which something else lies than a command wants, gets an
// answer that says so, in a sentence without an errno's text, and a code that scripts can decide by.
func TestAnswers(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	for _, step := range []string{"1", "2"} {
		m.Must(os.MkdirAll(m.Path("runs/a", step), 0o755))
		data, _ := mounttest.SafetensorsOf([]string{"w"}, [][]byte{mounttest.Noise(uint64(step[0]), 300<<10)})
		m.Write("runs/a/"+step+"/m.safetensors", data)
		m.Write("runs/a/"+step+"/metrics.json", []byte(`{"loss": 1}`))
	}
	m.Sync()
	const none = "no such file or directory"
	for _, tc := range []struct {
		args       string
		code, says string
	}{
		{"prune $/runs/nope", "not_found", none},
		{"compact $/runs/nope", "not_found", none},
		{"check $/runs/nope", "not_found", none},
		{"sync $/runs/nope", "not_found", none},
		{"stats $/runs/nope", "not_found", none},
		{"status $/runs/nope", "not_found", none},
		{"runs $/runs/a/1/m.safetensors/x", "not_found", none},
		{"lineage $/runs/nope", "not_found", none},
		{"owner $/runs/nope/m.safetensors:w", "not_found", none},
		{"ancestor $/runs/a/1 $/runs/nope", "not_found", none},
		{"log $/runs/a/1", "invalid", "runs/a/1 is no run, it lies in one: is it runs/a?"},
		{"log $", "invalid", "is no run: a run is a folder in runs/, and `ckptfs runs` lists them"},
		{"best $/runs/a/1 loss", "invalid", "is it runs/a?"},
		{"best $/runs/a nope", "not_found", `no complete step has metric "nope" with a number; ` +
			"its complete steps have loss"},
		{"cat-tensor $/runs/a/1/m.safetensors v", "not_found", "m.safetensors: no tensor called \"v\""},
		{"owner $/runs/a/1/m.safetensors", "usage", "the name of a tensor"},
		{"show $/runs/a", "invalid", "a folder without a checkpoint"},
		{"forget $/runs/a", "usage", "nothing would be kept: at least one rule has to say what is, such as --keep-last 3"},
		{"forget $/runs/a --keep-last -1", "usage", "neither may be negative"},
		{"find $ --tensor 0123456789abcdef", "not_found", "no packed file"},
	} {
		args := strings.Fields(strings.ReplaceAll(tc.args, "$", m.Dir))
		said, code := m.RunFails(append(args, "--json")...)
		var e struct {
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal([]byte(said), &e); err != nil || code == 0 || e.Error.Code != tc.code ||
			!strings.Contains(e.Error.Message, tc.says) {
			t.Errorf("%s: exit %d, %s", tc.args, code, said)
		}
		for _, left := range []string{"no data available", "invalid argument", "not valid"} {
			if strings.Contains(said, left) {
				t.Errorf("%s: %s", tc.args, said)
			}
		}
	}
	if said := m.Sh(m.Bin + " check runs/a 2>&1"); !strings.Contains(said, "of the whole store") {
		t.Errorf("check of a run does not say what it is of: %s", said)
	}
	if f := m.Show("runs/a/1"); f.State != "resident" || len(f.Tensors) != 1 {
		t.Errorf("show of a step: %+v", f)
	}
	var best struct{ Path, Mount string }
	m.JSON(&best, "best", "--json", m.Path("runs/a"), "loss")
	if best.Path != m.Path("runs/a/1") || best.Mount != m.Dir {
		t.Errorf("best: %+v", best)
	}
}

// TestStatusChangesNothing: after the death of all of ckptfs status of the store says so, and leaves it to
// the next mount to repair it and to log that.
func TestStatusChangesNothing(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Write("f", mounttest.Noise(1, 1<<20))
	m.Kill()
	m.Run("umount", m.Dir)
	for range 2 {
		said, code := m.RunFails("status", m.Store)
		if code != exitRecovery || !strings.Contains(said, "not closed in order") {
			t.Errorf("exit %d: %s", code, said)
		}
	}
	m.Must(m.Start())
	if log := m.LogText(); !strings.Contains(log, "not closed in order") {
		t.Errorf("the log does not say what the mount repaired: %s", log)
	}
}
