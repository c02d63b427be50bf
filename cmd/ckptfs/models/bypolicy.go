package models

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/rundir"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/formats/dcp"
	"ckptfs/formats/deepspeed"
	"ckptfs/formats/detect"
	"ckptfs/fs/control"
	"ckptfs/fs/policy"
	fssteps "ckptfs/fs/steps"
	"ckptfs/fs/view"
	"ckptfs/index/runs"
)

// byPolicy is what forget --policy prints.
type byPolicy struct {
	DryRun  bool           `json:"dry_run"`
	Files   []dropped      `json:"files"`
	Skipped []control.Skip `json:"skipped"` // files that a rule is of, and why they stay as they are
}

// forgetByRules removes the optimizer's state that rules name, or, where these are nil, those of the store,
// from the runs at or below paths of a mount.
func forgetByRules(ctx context.Context, s Shell, paths []string, rules *policy.Policy, dry bool) error {
	out := &byPolicy{DryRun: dry, Files: []dropped{}, Skipped: []control.Skip{}}
	for _, path := range paths {
		if err := forgetByPolicy(ctx, s, path, rules, dry, out); err != nil {
			return err
		}
	}
	err := s.Show(out, func(w io.Writer) {
		s.Left(out.Skipped)
		printByPolicy(w, out)
	})
	if err == nil && len(out.Skipped) > 0 {
		err = s.Partial()
	}
	return err
}

// forgetByPolicy does so for one path. A command does it and not the daemon: what is removed is gone, so
// somebody asks for it, may see it before by a dry run, and needs the right to remove the files.
func forgetByPolicy(
	ctx context.Context, s Shell, arg string, rules *policy.Policy, dry bool, out *byPolicy,
) error {
	at, err := place.Find(arg)
	if err != nil {
		return err
	}
	if at.Mount == nil || at.Mount.Root != "/" {
		return exit.With(exit.NotStore, fmt.Errorf("%s is in no mount of the whole store %s, and forget works on one: `ckptfs mount %s MOUNTPOINT` first", arg, at.Store, text.Word(at.Store)))
	}
	return s.Look(ctx, arg, func(c *control.Client, at *place.Place) error {
		if rules == nil {
			var err error
			if rules, err = rulesOf(ctx, c); err != nil {
				return err
			}
			if !rules.Has(policy.Drop) {
				s.Say("%s: no rule of the store says %s: nothing is removed", arg, policy.Drop)
				return nil
			}
		}
		names, err := runsAt(ctx, c, arg, at.Path)
		if err != nil {
			return err
		}
		for _, name := range names {
			d := &dropper{c: c, rules: rules, mountpoint: at.Mount.Mountpoint,
				run: path.Join(runs.Dir, name), dry: dry, out: out,
				old: map[*policy.Rule]map[string]bool{}}
			if err := d.all(ctx, at); err != nil {
				return err
			}
		}
		return nil
	})
}

// rulesOf are the rules that hold. Nothing is removed by those of a file that cannot be read any more.
func rulesOf(ctx context.Context, c *control.Client) (*policy.Policy, error) {
	p, err := c.Policy(ctx, false)
	if err != nil {
		return nil, err
	}
	if p.Problem != "" {
		return nil, fmt.Errorf("nothing is removed by a policy that cannot be read: %s", p.Problem)
	}
	return policy.Lines(len(p.Rules), func(i int) (int, string, string) {
		r := &p.Rules[i]
		return r.Line, r.Pattern, r.Rule
	})
}

// runsAt are the names of the runs at or below a path.
func runsAt(ctx context.Context, c *control.Client, arg, at string) (names []string, err error) {
	name, below := strings.CutPrefix(at, runs.Dir+"/")
	switch {
	case at == "" || at == runs.Dir:
		l, err := c.Runs(ctx)
		if err != nil {
			return nil, err
		}
		for i := range l.Runs {
			names = append(names, l.Runs[i].Run)
		}
		return names, nil
	case below && !strings.Contains(name, "/"):
		return []string{name}, nil
	}
	return nil, exit.With(exit.Usage, fmt.Errorf("%s: no run: it is to be the mount, or a folder below its %s", arg, runs.Dir))
}

// dropper removes the optimizer's state of old steps of one run.
type dropper struct {
	c          *control.Client
	rules      *policy.Policy
	mountpoint string
	run        string // relative to the mount's root
	dry        bool
	out        *byPolicy

	log   *control.RunLog
	old   map[*policy.Rule]map[string]bool // by rule: the steps that lose their optimizer's state
	files []string                         // that were removed
}

// logged is how many files one line of the log names.
const logged = 64

func (d *dropper) all(ctx context.Context, at *place.Place) (err error) {
	if d.log, err = d.c.Steps(ctx, d.run); err != nil {
		return err
	}
	if d.log.Last == "" {
		return nil // a step that can be gone on from is to remain
	}
	root, err := rundir.Open(filepath.Join(d.mountpoint, d.run), at.Device())
	if err != nil { // its owner moved it, perhaps: there are other runs
		d.skip(d.run, err.Error())
		return nil
	}
	defer root.Close()
	if !d.dry {
		if err := rundir.RemoveLeft(root); err != nil {
			return err
		}
		defer func() {
			for some := range slices.Chunk(d.files, logged) { // a daemon that ended meanwhile logs nothing
				_ = d.c.Dropped(context.WithoutCancel(ctx), d.run, some)
			}
		}()
	}
	for i := range d.log.Steps {
		step := d.log.Steps[i].Step
		if step == d.log.Last {
			continue
		}
		e, err := d.c.Entry(ctx, path.Join(d.run, step))
		switch {
		case errors.Is(err, fs.ErrNotExist): // it went meanwhile
		case err != nil:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			d.skip(path.Join(d.run, step), err.Error())
		case e.Mode&unix.S_IFMT == unix.S_IFDIR:
			if err := d.folder(ctx, root, step, step); err != nil {
				return err
			}
		default:
			full := path.Join(d.run, step)
			if r := d.ruleOf(full); r != nil && d.loses(r, step) {
				if err := d.file(ctx, root, step, step); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (d *dropper) ruleOf(full string) *policy.Rule { return d.rules.Of(policy.Drop, full) }

func bases(paths []string) []string {
	names := make([]string, len(paths))
	for i, p := range paths {
		names[i] = path.Base(p)
	}
	return names
}

// loses reports whether a rule takes the optimizer's state from a step.
func (d *dropper) loses(r *policy.Rule, step string) bool {
	old, known := d.old[r]
	if !known {
		old = oldSteps(d.log, r, time.Now())
		d.old[r] = old
	}
	return old[step]
}

// oldSteps are the complete steps that a rule takes the optimizer's state from. They come before the one
// that the run can be gone on from, have a number in their names if that has one, and are none of the last
// complete ones of these. What is torn, is being written or is about to arrive is none of them.
func oldSteps(l *control.RunLog, r *policy.Rule, now time.Time) map[string]bool {
	old := map[string]bool{}
	steps, err := judged(l, false)
	if err != nil {
		return old
	}
	runs.Sort(steps)
	_, numbers := runs.Numbers(l.Last)
	numbered := len(numbers) > 0
	var before []runs.Step
	found := false
	for _, st := range steps {
		_, numbers := runs.Numbers(st.Name)
		if numbered && len(numbers) == 0 {
			continue
		}
		before = append(before, st)
		if found = st.Name == l.Last; found {
			break
		}
	}
	if !found {
		return old
	}
	decisions, err := runs.Policy{KeepLast: max(r.KeepLast, 2), KeepWithin: r.OlderThan}.Decide(before, now)
	if err != nil {
		return old
	}
	for _, x := range decisions {
		if !x.Keep && x.Step.Complete && x.Step.Name != l.Last {
			old[x.Step.Name] = true
		}
	}
	return old
}

// folder looks at the files in a folder of a step, whose path in the run is rel.
func (d *dropper) folder(ctx context.Context, root *os.Root, step, rel string) error {
	var files, folders []string
	whole := false              // the folder is one checkpoint
	remote := map[string]bool{} // the names of files whose bytes are elsewhere
	err := d.c.Entries(ctx, path.Join(d.run, rel), func(some []control.Entry) error {
		for i := range some {
			e := &some[i]
			at := path.Join(rel, string(e.Name))
			whole = whole || dcp.IsMetadata(at) && !e.View && e.Mode&unix.S_IFMT != unix.S_IFDIR
			switch {
			case e.View: // no file
			case e.State == control.StateRemote:
				remote[string(e.Name)] = true
			case e.Mode&unix.S_IFMT == unix.S_IFDIR:
				folders = append(folders, at)
			case e.Mode&unix.S_IFMT == unix.S_IFREG:
				files = append(files, at)
			}
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it went meanwhile
	}
	if err != nil {
		d.skip(path.Join(d.run, rel), err.Error())
		return ctx.Err()
	}
	slices.Sort(files)
	slices.Sort(folders)
	ranks := false // that wrote in ZeRO are seen to
	for _, at := range files {
		r := d.ruleOf(path.Join(d.run, at))
		if r == nil || !d.loses(r, step) {
			continue
		}
		if strings.HasSuffix(at, deepspeed.OptimizerSuffix) {
			if !ranks {
				ranks = true
				if err := d.zero(ctx, root, step, rel, bases(files), remote); err != nil {
					return err
				}
			}
			continue
		}
		if whole { // the rule is to be of the file that says what the folder has
			if dcp.IsMetadata(path.Base(at)) {
				if err := d.distributed(ctx, root, step, rel, remote); err != nil {
					return err
				}
			}
			continue
		}
		if err := d.file(ctx, root, step, at); err != nil {
			return err
		}
	}
	for _, at := range folders {
		if err := d.folder(ctx, root, step, at); err != nil {
			return err
		}
	}
	return nil
}

func (d *dropper) skip(full, reason string) {
	d.out.Skipped = append(d.out.Skipped, control.Skip{Path: full, Reason: reason})
}

// file makes a file of a checkpoint's weights and removes the checkpoint; or it removes a file that has
// nothing but optimizer state. An error is that of the run: of a file it is noted.
func (d *dropper) file(ctx context.Context, root *os.Root, step, rel string) error {
	full := path.Join(d.run, rel)
	f, err := openIn(root, rel)
	if err != nil {
		d.skip(full, err.Error())
		return ctx.Err()
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return err
	}
	l, err := detect.Detect(f, st.Size())
	if err != nil {
		d.skip(full, err.Error())
		return ctx.Err()
	}
	out := dropped{File: full, DryRun: d.dry, Size: st.Size()}
	kept, err := withoutOptimizer(l, &out)
	if errors.Is(err, errNoState) || errors.Is(err, errNoTensors) || errors.Is(err, errUnnamed) {
		return nil
	}
	var weights string
	var plan *view.View
	if err == nil {
		weights = strings.TrimSuffix(rel, path.Ext(rel)) + weightsSuffix
		if plan, err = view.Safetensors(l.Regions, kept); err != nil {
			d.skip(full, "its weights cannot be written as safetensors: "+err.Error())
			return nil
		}
		out.Weights, out.NewSize = path.Join(d.run, weights), plan.Size()
	} else if !errors.Is(err, errOnlyState) {
		d.skip(full, err.Error())
		return nil
	}
	return d.note(ctx, &out, d.replace(ctx, root, step, rel, weights, f, st, plan))
}

// note notes what lost its optimizer's state, or, with an error, why it did not. An error is that of the run.
func (d *dropper) note(ctx context.Context, out *dropped, err error) error {
	if err != nil {
		d.skip(out.File, err.Error())
		return ctx.Err()
	}
	if !d.dry {
		d.files = append(d.files, out.File)
	}
	d.out.Files = append(d.out.Files, *out)
	return nil
}

// replace makes the file of weights, unless that is "", durable, and then removes the checkpoint. A dry run
// only finds out whether that can be.
func (d *dropper) replace(ctx context.Context, root *os.Root, step, rel, weights string, f *os.File,
	st os.FileInfo, plan *view.View) error {
	made := false
	if weights != "" {
		attrs, err := d.attributes(f, step, rel)
		if err != nil {
			return err
		}
		if d.dry {
			return canHave(ctx, root, weights, f, plan)
		}
		if step != rel && path.Ext(rel) == fssteps.LightningSuffix {
			if err := d.noteMetrics(root, step); err != nil {
				return err
			}
		}
		if made, err = writeIn(ctx, root, weights, f, st, plan, attrs); err != nil {
			return err
		}
	}
	if d.dry {
		return nil
	}
	err := unchanged(root, rel, st)
	if err == nil {
		err = root.Remove(rel)
	}
	if err != nil && made && !errors.Is(err, fs.ErrNotExist) { // else another command may have removed it
		return errors.Join(err, root.Remove(weights))
	}
	return err
}

func printByPolicy(w io.Writer, out *byPolicy) {
	var freed int64
	rows := make([][]string, len(out.Files))
	for i, f := range out.Files {
		after := "removed"
		if f.Weights != "" {
			after = text.Bytes(f.NewSize)
		}
		rows[i] = []string{text.Printable(f.File), text.Bytes(f.Size), after}
		freed += f.Size - f.NewSize
	}
	if len(rows) > 0 {
		text.Table(w, []string{"FILE", ">BEFORE", ">WEIGHTS"}, rows)
	}
	verb := "lost"
	if out.DryRun {
		verb = "would lose"
	}
	fmt.Fprintf(w, "%s %s their optimizer's state, %s\n", text.Plural(int64(len(rows)), "file"), verb, text.Bytes(freed))
}
