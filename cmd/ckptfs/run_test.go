package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"ckptfs/cas"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/place/placetest"
	"ckptfs/fs/control"
)

// shelf is a volume that answers with samples.
type shelf struct {
	fail    error
	skipped []control.Skip
	path    string // of the last question
}

func (s *shelf) Stats(context.Context) (*control.Stats, error) { return sampleStats, s.fail }
func (s *shelf) Status(context.Context) (*control.Status, error) {
	return &control.Status{HotSize: -1}, s.fail
}

func (s *shelf) Du(context.Context, control.DuOptions) (*control.Du, error) {
	return &control.Du{}, s.fail
}

func (s *shelf) Sync(_ context.Context, progress func(control.Progress)) error {
	progress(control.Progress{DoneBytes: 1, TotalBytes: 2, TotalFiles: 1})
	return s.fail
}

func (s *shelf) Evict(_ context.Context, path string, progress func(control.Progress)) (*control.Moved,
	error) {
	s.path = path
	return &control.Moved{Files: 3, Bytes: 5 << 20, Skipped: s.skipped}, s.fail
}

func (s *shelf) Hydrate(ctx context.Context, path string, progress func(control.Progress)) (*control.Moved,
	error) {
	return s.Evict(ctx, path, progress)
}

func (s *shelf) Compact(_ context.Context, o control.CompactOptions,
	_ func(control.Progress)) (*control.Compacted, error) {
	return &control.Compacted{DryRun: o.DryRun}, s.fail
}

func (s *shelf) Prune(_ context.Context, o control.PruneOptions,
	_ func(control.Progress)) (*control.Pruned, error) {
	return &control.Pruned{DryRun: o.DryRun}, s.fail
}

func (s *shelf) Check(context.Context, control.CheckOptions,
	func(control.Progress)) (*control.Checked, error) {
	return &control.Checked{}, s.fail
}

func (s *shelf) Show(_ context.Context, path string, _ control.Passes) (*control.File, error) {
	s.path = path
	if path != sampleFile.Path {
		return nil, &fs.PathError{Op: "show", Path: path, Err: syscall.ENOENT}
	}
	return sampleFile, s.fail
}

// folders is a tree of empty folders, whatever they are called.
type folders struct{ control.Files }

func (folders) Entry(context.Context, string) (*control.Entry, error) {
	return &control.Entry{Mode: syscall.S_IFDIR}, nil
}

func (folders) Entries(context.Context, string, func([]control.Entry) error) error { return nil }

// serveShelf makes a store whose daemon answers with s, and returns its folder.
func serveShelf(t *testing.T, s *shelf) string {
	t.Helper()
	return serveVolume(t, s)
}

func serveVolume(t *testing.T, v control.Volume) string {
	t.Helper()
	store := placetest.MakeStore(t)
	m := control.Mount{Version: "1", Store: store, Mode: control.ModeServed, Mountpoint: "/mnt/x"}
	srv, err := control.Serve(store, control.NewHandler(control.Services{Volume: v, Files: folders{}}, m))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return store
}

func command(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, &o, &e)
	return code, o.String(), e.String()
}

func TestCommandsThroughTheSocket(t *testing.T) {
	s := &shelf{}
	store := serveShelf(t, s)
	placetest.MakeFile(t, store+"/tree/runs/a/3/model.pt", "")
	for _, tc := range []struct {
		args []string
		says string
		path string
	}{
		{[]string{"stats", store}, "21, 20 packed", ""},
		{[]string{"status", store}, "/mnt/x", ""},
		{[]string{"sync", store}, "everything is packed", ""},
		{[]string{"evict", store + "/tree/runs"}, "evicted 3 files, 5.00 MiB freed", "runs"},
		{[]string{"hydrate", store}, "hydrated 3 files, 5.00 MiB copied", ""},
		{[]string{"show", store + "/tree/runs/a/3/model.pt"}, "conv1.weight", "runs/a/3/model.pt"},
		{[]string{"version"}, "ckptfs dev", ""},
		{[]string{"help", "exit-codes"}, "Exit codes", ""},
	} {
		s.path = ""
		code, out, errs := command(t, tc.args...)
		if code != exit.OK || !strings.Contains(out, tc.says) || errs != "" || s.path != tc.path {
			t.Errorf("%v: exit %d, asked %q\n%s%s", tc.args, code, s.path, out, errs)
		}
	}
}

func TestJSON(t *testing.T) {
	store := serveShelf(t, &shelf{skipped: []control.Skip{{Path: "x", Reason: "open"}}})
	for _, tc := range []struct {
		args []string
		code int
		keys []string
	}{
		{[]string{"stats", store}, exit.OK, []string{"files", "tensors", "chunks", "logical_bytes",
			"unique_bytes", "stored_bytes", "resident_bytes", "ratio", "runs"}},
		{[]string{"status", store}, exit.OK, []string{"version", "store", "mountpoint", "mode", "queue",
			"packing", "failures"}},
		{[]string{"sync", store}, exit.OK, []string{"store"}},
		{[]string{"evict", store}, exit.Partial, []string{"files", "bytes", "skipped"}},
		{[]string{"hydrate", store}, exit.Partial, []string{"files", "bytes", "skipped"}},
		{[]string{"version"}, exit.OK, []string{"version", "store_format", "go", "platform", "kernels"}},
	} {
		code, out, _ := command(t, append(tc.args, "--json")...)
		var v map[string]any
		if err := json.Unmarshal([]byte(out), &v); err != nil || code != tc.code {
			t.Errorf("%v: exit %d, %v in %s", tc.args, code, err, out)
		}
		for _, k := range tc.keys {
			if _, ok := v[k]; !ok {
				t.Errorf("%v: no %q in %s", tc.args, k, out)
			}
		}
	}
}

func TestFailures(t *testing.T) {
	s := &shelf{}
	store := serveShelf(t, s)
	placetest.MakeFile(t, store+"/tree/f", "")
	for _, tc := range []struct {
		name string
		fail error
		args []string
		code int
		says string
	}{
		{"usage", nil, []string{"stats"}, exit.Usage, "stats takes 1 argument, not 0\nUsage: ckptfs stats PATH"},
		{"no such command", nil, []string{"stat"}, exit.Usage, `no command "stat"; is it cat or stats`},
		{"no such flag", nil, []string{"stats", "--fast", store}, exit.Usage, "unknown flag: --fast"},
		{"bad size", nil, []string{"mount", "--hot-size=much", store, "/"}, exit.Usage, `"much" is not a size`},
		{"bad level", nil, []string{"mount", "--log-level=loud", store, "/"}, exit.Usage, `"loud": it is debug`},
		{"no such path", nil, []string{"stats", store + "/gone"}, exit.NotStore, "no such file or directory"},
		{"no store", nil, []string{"stats", t.TempDir()}, exit.NotStore, "not a ckptfs store"},
		{"file unknown to the volume", nil, []string{"show", store + "/tree/f"}, exit.Failure, "show f: no such file"},
		{"corrupt", &cas.ChunkError{Err: cas.ErrCorrupt}, []string{"stats", store}, exit.Damaged, "corrupt"},
		{"in a stream", syscall.ENOSPC, []string{"sync", store}, exit.Failure, "no space left"},
		{"unexpected", errors.New("bang\x1b[0m"), []string{"evict", store}, exit.Failure, `"bang\x1b[0m"`},
		{"unmount inside", nil, []string{"umount", store + "/tree/f"}, exit.Usage, "name the mountpoint or the store"},
	} {
		s.fail = tc.fail
		code, out, errs := command(t, tc.args...)
		if code != tc.code || !strings.Contains(errs, tc.says) || out != "" {
			t.Errorf("%s: exit %d\n%s%s", tc.name, code, out, errs)
		}
		code, _, errs = command(t, append([]string{"--json"}, tc.args...)...)
		var v struct {
			Error control.Error
			Exit  int `json:"exit_code"`
		}
		if err := json.Unmarshal([]byte(errs), &v); err != nil || code != tc.code || v.Exit != tc.code ||
			v.Error.Message == "" ||
			(tc.code == exit.Usage) != (v.Error.Code == "usage") ||
			(tc.code == exit.NotStore) != (v.Error.Code == "not_store") {
			t.Errorf("%s --json: exit %d, %v\n%s", tc.name, code, err, errs)
		}
	}
}

func TestSkippedFilesAreNamed(t *testing.T) {
	store := serveShelf(t, &shelf{skipped: []control.Skip{{Path: "a\nb", Reason: "open"}}})
	code, out, errs := command(t, "evict", store)
	if code != exit.Partial || !strings.Contains(out, "evicted 3 files") || !strings.Contains(errs, `"a\nb": left as it is: open`) {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}

func TestUmountOfWhatIsNotMounted(t *testing.T) {
	store := placetest.MakeStore(t)
	if code, _, errs := command(t, "umount", store); code != exit.NotStore ||
		!strings.Contains(errs, "is not mounted") {
		t.Errorf("exit %d\n%s", code, errs)
	}
}
