package volume

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// following are the steps that a follower is told of.
type following struct {
	t    *testing.T
	told chan control.NewStep
	end  context.CancelFunc
	done chan error
}

func (r *rig) follow(t *testing.T, o control.FollowOptions) *following {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := &following{t: t, told: make(chan control.NewStep), end: cancel, done: make(chan error, 1)}
	o.Run = "runs/a"
	go func() {
		f.done <- r.Requests.Follow(ctx, o, func(s control.NewStep) error {
			select {
			case f.told <- s:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	t.Cleanup(f.stop)
	return f
}

func (f *following) stop() {
	f.end()
	if err := <-f.done; !errors.Is(err, context.Canceled) {
		f.t.Errorf("it ended with %v", err)
	}
	f.done <- context.Canceled
}

// want waits for what is told next.
func (f *following) want(step, before string) {
	f.t.Helper()
	select {
	case s := <-f.told:
		if s.Step != step || s.Before != before {
			f.t.Errorf("told of %q after %q, want %q after %q", s.Step, s.Before, step, before)
		}
		if patch := ".ckptfs/since/a/" + before + "/" + step + ".safetensors"; step != "" && before != "" &&
			s.Patch != patch {
			f.t.Errorf("the patch is %s, want %s", s.Patch, patch)
		}
	case err := <-f.done:
		f.t.Fatalf("it ended with %v, want %q", err, step)
	case <-time.After(time.Minute):
		f.t.Fatalf("not told of %q", step)
	}
}

// nothing fails if something was told.
func (f *following) nothing(when string) {
	f.t.Helper()
	select {
	case s := <-f.told:
		f.t.Errorf("%s: told of %q", when, s.Step)
	default:
	}
}

// A follower is told of each step once, when it is all there.
func TestFollow(t *testing.T) {
	r := newRig(t)
	r.saveStep("runs/a/5", saved...)
	f := r.follow(t, control.FollowOptions{Settle: time.Hour})
	f.want("", "5")
	r.mkdir("runs/a/10")
	for i, name := range saved {
		f.nothing("before " + name)
		r.write("runs/a/10/"+name, random(1000, uint64(i)))
	}
	f.want("10", "5")
	r.write("runs/a/10/more.txt", random(10, 1))
	r.saveStep("runs/a/15", saved...) // fewer files than 10 has now, and it may become more
	r.saveStep("runs/a/20", append([]string{"other.txt"}, saved...)...)
	f.nothing("15 has fewer files")
	r.write("runs/a/15/more.txt", random(10, 1))
	f.want("15", "10")
	f.want("20", "15")

	h := r.open("runs/a/20/model.safetensors", unix.O_WRONLY|unix.O_TRUNC)
	r.writeAt(h, random(100, 1), 0)
	r.release(h)
	f.nothing("a step is written again")
	behind := r.follow(t, control.FollowOptions{From: "10"})
	behind.want("", "10")
	behind.want("15", "10")
	behind.want("20", "15")
	all := r.follow(t, control.FollowOptions{All: true})
	all.want("", "")
	all.want("5", "")

	err := r.Requests.Follow(context.Background(), control.FollowOptions{Run: "runs/a", From: "7"}, nil)
	if told := control.AsError(err); told.Code != control.CodeNotFound {
		t.Errorf("behind a step that is not there: %v", err)
	}
	if err := r.Requests.Follow(context.Background(), control.FollowOptions{Run: "runs/b"}, nil); err == nil {
		t.Error("a run that is not there is followed")
	}
}

// The first step of a run has none before it to be compared with: it is told of when it was left alone.
func TestFollowFirst(t *testing.T) {
	r := newRig(t)
	r.mkdir("runs")
	r.mkdir("runs/a")
	f := r.follow(t, control.FollowOptions{Settle: 50 * time.Millisecond})
	f.want("", "")
	r.saveStep("runs/a/1", saved...)
	f.want("1", "")
	r.saveStep("runs/a/2", saved...)
	f.want("2", "1")
}
