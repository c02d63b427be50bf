package maintenance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/segment"
	"ckptfs/cas/spilled"
	"ckptfs/cas/store"
	"ckptfs/fs/bases"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/pack"
	"ckptfs/fs/tree"
	"ckptfs/index/manifest"
	"ckptfs/index/runs"
)

// retireBytes is how much is encoded again, at most, before what it replaces is freed. Where less is free it
// is Reserve.Spare.
const retireBytes = 1 << 30

// Compact encodes again the chunks that take less room by today's encodings, or against bases that came
// later. It goes file by file, the oldest first, so that each file finds those before it as they will stay.
// Files may be saved, read, renamed and removed meanwhile. It may be interrupted at any time.
func (p *Passes) Compact(
	ctx context.Context, o control.CompactOptions, report func(control.Progress),
) (*control.Compacted, error) {
	if p.ReadOnly && !o.DryRun {
		return nil, unix.EROFS
	}
	if !o.DryRun {
		if err := p.Reserve.Room(0); err != nil {
			return nil, fmt.Errorf("make room, for example with `ckptfs prune` or `ckptfs evict`, "+
				"and compact then: %w", err)
		}
	}
	defer p.Throttle.Press()()
	out := &control.Compacted{DryRun: o.DryRun}
	var held *spilled.Set
	for range maxRounds {
		k, err := p.compact(ctx, out, held, report)
		if k == nil || err != nil || o.DryRun || k.held.Load() == 0 || k.Stats().Records == 0 {
			return out, err
		}
		held = k.holds
	}
	return out, nil
}

// maxRounds is how often chunks are gone through that others keep from being computed. Quants that are older
// than what they were made of are stored against each other. Those that nothing is stored against are
// computed in the first round, which frees the next ones.
const maxRounds = 8

// compact is a round of Compact: of all chunks, or of held ones. nil: it was not begun.
func (p *Passes) compact(ctx context.Context, out *control.Compacted, held *spilled.Set,
	report func(control.Progress)) (*compaction, error) {
	c, err := p.Store.Compact(ctx, out.DryRun)
	if errors.Is(err, store.ErrCompacting) {
		return nil, fmt.Errorf("%w: %w", err, unix.EBUSY)
	}
	if err != nil {
		return nil, err
	}
	defer c.End()
	k := &compaction{
		Compaction: c, passes: p, out: out, only: held, holds: spilled.NewSet(p.Spill),
		all: newCompacted(p.Spill), seen: spilled.NewSet(p.Spill), trials: pack.NewTrials(),
	}
	k.anchored = newAnchored(p)
	err = k.files(ctx, report)
	if err != nil && ctx.Err() == nil && !out.DryRun {
		// The disk may be full. What was encoded again until here must not take room twice.
		err = errors.Join(err, p.Store.Flush())
	}
	if ctx.Err() == nil {
		err = errors.Join(err, c.Retire(ctx))
	}
	st := c.Stats()
	if held == nil {
		k.out.Looked = st.Looked
	}
	k.out.Chunks += st.Records
	k.out.BytesBefore, k.out.BytesAfter = k.out.BytesBefore+st.Before, k.out.BytesAfter+st.After
	k.out.FreedBytes, k.out.CopiedBytes = k.out.FreedBytes+st.Freed, k.out.CopiedBytes+st.Copied
	k.out.SegmentBytes = p.Store.Stats().Bytes
	if !out.DryRun {
		p.Reserve.Retake()
	}
	if errors.Is(err, unix.ENOSPC) {
		err = fmt.Errorf("%d chunks were encoded again, and stay so; "+
			"make room, for example with `ckptfs prune` or `ckptfs evict`, and compact again: %w", st.Records, err)
	}
	return k, err
}

type compaction struct {
	*store.Compaction
	passes   *Passes
	out      *control.Compacted
	all      *compactedFiles
	alike    bases.Signatures // of the files that are done
	trials   *pack.Trials
	anchored *anchored
	retired  int64        // bytes that had been encoded again when Retire was called last
	seen     *spilled.Set // chunks
	only     *spilled.Set // chunks that are tried; nil: all
	holds    *spilled.Set // chunks that others may keep from being computed, and
	held     atomic.Int64 // how many these are

	naming  sync.Once
	named   *spilled.Set // chunks that files name
	unnamed bool         // it does not have all of them
}

func (k *compaction) files(ctx context.Context, report func(control.Progress)) error {
	var mu sync.Mutex
	err := k.passes.tour(ctx, func(path string, n *names.Node, st *unix.Stat_t) error {
		rec, size, err := packedFile(n, st)
		if err != nil || !rec.Packed() || rec.Remote {
			return nil // gone meanwhile, damaged, or plain
		}
		mu.Lock()
		defer mu.Unlock()
		return k.all.add(path, compacted{manifest: rec.Manifest, size: size, mtime: rec.Mtime})
	})
	if err != nil {
		return err
	}
	if !k.out.DryRun && k.passes.Bases.AnchorsLost() {
		// Those of files to come, too: a quant may be older than what it was made of.
		err := k.all.each(func(f *compacted, _ string) error {
			m, err := k.passes.Assemble.Manifest(f.manifest)
			if err != nil {
				return ctx.Err()
			}
			return k.anchored.file(ctx, f.manifest, m)
		})
		if err != nil {
			return err
		}
	}
	done := int64(0)
	return k.all.each(func(f *compacted, path string) error {
		if report != nil {
			report(control.Progress{
				DoneBytes: done, TotalBytes: k.all.bytes,
				DoneFiles: k.out.Files, TotalFiles: k.all.len(), Current: path,
			})
		}
		if err := k.file(ctx, f.manifest, path); err != nil {
			return err
		}
		done += f.size
		if k.only == nil {
			k.out.Files++
		}
		return nil
	})
}

// apart has a rounding of chunks that no file names be stored without them. Of recipes that is for a prune.
func (k *compaction) apart(was *segment.Base) bool {
	return was.Number == segment.RoundedNumber && !slices.ContainsFunc(was.Hashes(), k.wanted)
}

// wanted reports whether a file names a chunk. The first call reads all manifests.
func (k *compaction) wanted(h cas.Hash) bool {
	k.naming.Do(k.name)
	return k.named.MayHave(short(h)) || k.named.Err() != nil || k.unnamed
}

// name notes which chunks files name.
func (k *compaction) name() {
	k.named = spilled.NewSet(k.passes.Spill)
	err := k.all.manifests(func(h cas.Hash) {
		m, err := k.passes.Assemble.Manifest(h)
		if err != nil {
			return
		}
		for _, o := range m.Objects {
			spans, _ := o.Spans(k.passes.Store.Get)
			for _, s := range spans {
				k.named.Add(short(s.Hash))
			}
		}
	})
	k.unnamed = err != nil
}

// packedFile is the record of a file, packed or not, and its size.
func packedFile(n *names.Node, found *unix.Stat_t) (tree.Record, int64, error) {
	f := n.File()
	f.Lock()
	defer f.Unlock()
	if err := f.LoadLocked(); err != nil {
		return tree.Record{}, 0, err
	}
	st, err := asFound(n, found)
	return f.StateLocked().Record, st.Size, err
}

// file encodes again the chunks of the file at a path, with a manifest h.
func (k *compaction) file(ctx context.Context, h cas.Hash, path string) error {
	p := k.passes
	m, err := p.Assemble.Manifest(h)
	if err != nil {
		if k.only == nil {
			k.out.Passed++
		}
		return nil
	}
	again := pack.Recoding{Series: runs.Series(path), Trials: k.trials}
	again.Related = sync.OnceValue(func() pack.Related {
		// Only the files before this one, which are older, may be its bases.
		rel, was := p.Bases.RelatedAmong(path, m.Layout(), k.all.named, k.all.toCome, &k.alike)
		k.alike.Note(pack.Signs(m.Tensors), h, was)
		return rel
	})
	defer k.all.done(h)
	if !k.out.DryRun {
		if err := k.anchored.file(ctx, h, m); err != nil {
			return err
		}
	}
	for {
		done := k.Stats().Records
		err := k.recode(ctx, m, again)
		if !errors.Is(err, unix.ENOSPC) || k.Stats().Records == done {
			return err
		}
		// The disk is short: free what was replaced, and go on if that made room.
		if err := k.retire(ctx); err != nil {
			return err
		}
		if step, ferr := p.Reserve.Step(); ferr != nil || p.Reserve.Room(step) != nil {
			return err
		}
	}
}

// recode encodes the chunks of a file again, but for those that an earlier file had, too.
func (k *compaction) recode(ctx context.Context, m *manifest.Manifest, again pack.Recoding) error {
	p := k.passes
	b := p.Store.Begin()
	defer b.Release()
	again.Claim = k.claim
	again.Chunk = func(h cas.Hash, hint codec.Hint, rel cas.Related) (saved bool, err error) {
		if err = ctx.Err(); err == nil {
			saved, err = k.Recode(b, h, hint, rel, k.apart)
		}
		if err == nil && !saved && k.isHeld(h, &rel) {
			k.holds.Add(short(h))
			k.held.Add(1)
			return true, nil // it would have paid
		}
		if err != nil {
			k.unclaim(h)
		}
		return saved, err
	}
	err := p.Pack.Recode(ctx, m, again)
	if errors.Is(err, unix.ENOSPC) {
		return errors.Join(err, p.Store.Flush())
	}
	if err != nil {
		return err
	}
	if err := b.Commit(); err != nil {
		return err
	}
	b.Release()
	written := k.Stats().After - k.retired
	if written == 0 {
		return nil // as of most files
	}
	spare, err := p.Reserve.Spare()
	if err == nil && written >= min(retireBytes, spare) {
		return k.retire(ctx)
	}
	return err
}

// isHeld reports whether a chunk that was not stored again may be computed, and is not.
func (k *compaction) isHeld(h cas.Hash, rel *cas.Related) bool {
	var at [1]cas.Location
	if rel.Recipe == nil && rel.Masters[0].IsZero() || k.passes.Store.Locate([]cas.Hash{h}, at[:]) != nil {
		return false
	}
	return at[0].Segment != 0 && at[0].Codec != codec.Recipe && at[0].Codec != codec.Rounded
}

// claim reports whether a chunk is to be tried, and was not yet; it is from now on.
func (k *compaction) claim(h cas.Hash) bool {
	return (k.only == nil || k.only.MayHave(short(h))) && k.seen.Add(short(h))
}

// unclaim has a chunk tried again.
func (k *compaction) unclaim(h cas.Hash) { k.seen.Remove(short(h)) }

// retire frees what was replaced.
func (k *compaction) retire(ctx context.Context) error {
	k.retired = k.Stats().After
	return k.Retire(ctx)
}
