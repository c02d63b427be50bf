package volume

import (
	"context"
	"os"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/handover"
	"ckptfs/fs/names"
)

// slow is a kernel that takes a notification only once a command has answered, or after a while.
type slow struct {
	content.Kernel
	answered chan struct{}

	mu    sync.Mutex
	early bool // the command answered before all was taken
	taken int
}

func (k *slow) InvalidateName(content.NodeID, string) {
	select {
	case <-k.answered:
	case <-time.After(20 * time.Millisecond):
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.taken++
	select {
	case <-k.answered:
		k.early = true
	default:
	}
}

// The kernel has heard of a name before the command answers that brought it.
func TestKernelHearsFirst(t *testing.T) {
	ctx := context.Background()
	for name, command := range map[string]func(b *machine) error{
		"fetch": func(b *machine) error { _, err := b.Fetch(ctx); return err },
		"pull":  func(b *machine) error { _, err := b.Pull(ctx, "", nil); return err },
		"drop":  func(b *machine) error { _, err := b.Drop(ctx, "runs/x", nil); return err },
		"repair": func(b *machine) error {
			_, err := b.RepairRemote(ctx, nil, nil)
			return err
		},
		"undelete": func(b *machine) error { _, err := b.Undelete(ctx, "runs/x/0", nil); return err },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t)
			a, b := c.join("a"), c.join("b")
			a.put("runs/x/0/f", []byte("f"))
			a.put("runs/x/1/f", []byte("f"))
			a.published("")
			a.unlink("runs/x/0/f")
			a.published("")
			b.fetched()
			if b.exists("runs/x/2") {
				t.Fatal("it is there already")
			}
			a.put("runs/x/2/f", []byte("f"))
			a.published("")
			k := &slow{Kernel: b.content.Kernel(), answered: make(chan struct{})}
			b.content.SetKernel(k)
			err := command(b)
			close(k.answered)
			if err != nil {
				t.Fatal(err)
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.early || k.taken == 0 {
				t.Errorf("it answered before the kernel had heard of all names: of %d", k.taken)
			}
			if _, err := os.Stat(b.at("tree/runs/x/2")); err != nil {
				t.Error(err)
			}
		})
	}
}

// Commands that look at names have the kernel hear of those that they made appear.
func TestKernelHearsOfLookedAt(t *testing.T) {
	ctx := context.Background()
	for name, look := range map[string]func(b *machine) error{
		"runs": func(b *machine) error { _, err := b.Runs(ctx); return err },
		"log":  func(b *machine) error { _, err := b.Log(ctx, "runs/x", nil); return err },
		"best": func(b *machine) error { b.names(".ckptfs/best/x"); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t)
			a, b := c.join("a"), c.join("b")
			a.put("runs/x/1/metrics.json", []byte(`{"loss": 1}`))
			a.published("")
			if _, err := b.sharing.get().Fetch(ctx); err != nil {
				t.Fatal(err)
			}
			k := &slow{Kernel: b.content.Kernel(), answered: make(chan struct{})}
			b.content.SetKernel(k)
			err := look(b)
			close(k.answered)
			if err != nil {
				t.Fatal(err)
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.early || k.taken == 0 {
				t.Errorf("it answered before the kernel had heard of all names: of %d", k.taken)
			}
		})
	}
}

// A fetch shows what it found where a lookup that began before is at the folder still.
func TestFetchDuringLook(t *testing.T) {
	const p, q = "runs/x/1/f", "runs/x/1/g"
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put(p, random(10<<10, 1))
	a.published("")
	b.fetched()
	reached, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	b.content.Step = func(string) error {
		once.Do(func() {
			close(reached)
			<-goOn
		})
		return nil
	}
	looked, fetched := make(chan bool), make(chan error)
	go func() { looked <- b.exists(p) }()
	<-reached
	a.put(q, random(10<<10, 2))
	a.published("")
	before := b.sharing.get().Status().LastContact
	go func() {
		_, err := b.Fetch(context.Background())
		fetched <- err
	}()
	b.eventually("it was fetched", func() bool { return b.sharing.get().Status().LastContact != before })
	close(goOn)
	if err := <-fetched; err != nil || !<-looked {
		t.Error(err)
	}
	if _, err := os.Stat(b.at("tree", q)); err != nil {
		t.Error(err)
	}
}

// The process that takes a mount over has the kernel ask again for what the one before may not have told,
// and keeps the folders up to date that the kernel knows.
func TestNextProcessTells(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	a.put("runs/x/1/f", []byte("f"))
	a.put("runs/x/g", []byte("g"))
	a.put("runs/x/h", []byte("h"))
	a.published("")
	b.fetched()
	b.same("runs/x/1/f", []byte("f"))
	memory, err := handover.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { memory.Close() })
	past := map[uint64]handover.Node{}
	for i, p := range []string{"runs", "runs/x", "runs/x/h"} {
		var st unix.Stat_t
		if err := unix.Stat(b.at("tree", p), &st); err != nil {
			t.Fatal(err)
		}
		id := uint64(i + 2)
		past[id] = handover.Node{ID: id, Parent: id - 1, Name: path.Base(p), Ino: st.Ino,
			Type: st.Mode & unix.S_IFMT}
	}
	var mu sync.Mutex
	var heard []string
	hears := &told{call: func(name string) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, name)
	}}
	b.rig = b.reopen(c.shared, func(o *Options) {
		o.Resume = func(v *Volume) error {
			hears.Kernel = v.content.Kernel()
			v.Attach(hears, "/mnt", false, control.ModeServed, "")
			v.Names().TakeOver(&names.Heir{Nodes: memory.Nodes(), Keep: func(uint64, int) {},
				Unkeep: func(uint64) {}}, past)
			return nil
		}
	})
	b.eventually("the kernel hears of what it may not know", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Contains(heard, "1") && slices.Contains(heard, "g")
	})
	a.put("runs/x/2/f", []byte("f"))
	a.published("")
	b.fetched()
	mu.Lock()
	defer mu.Unlock()
	if !slices.Contains(heard, "2") {
		t.Errorf("the kernel heard of %q alone", heard)
	}
	for _, known := range []string{"runs", "x", "h"} {
		if slices.Contains(heard, known) {
			t.Errorf("it asks again for %s, which it knows", known)
		}
	}
}

// Where a store is joined to a remote while it is mounted, the kernel knows already that names are not there.
func TestJoinTellsKernel(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), newRig(t)
	a.put("runs/x/1/f", []byte("f"))
	a.published("")
	b = b.reopen(c.shared)
	b.Attach(b.content.Kernel(), "/mnt", false, control.ModeServed, "")
	if b.exists("runs") {
		t.Fatal("it is there already")
	}
	var mu sync.Mutex
	heard := false
	b.tells(func(name string) {
		mu.Lock()
		defer mu.Unlock()
		heard = heard || name == "runs"
	})
	c.joins(b, "b")
	if err := b.Join(context.Background()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if !heard {
		t.Error("the kernel did not hear of what others published")
	}
}
