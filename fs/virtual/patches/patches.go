// Package patches keeps the patches from step to step that were asked for last, the files below
// .ckptfs/since.
package patches

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/singleflight"

	"ckptfs/cas/locks"
	"ckptfs/fs/inspect"
)

// Key is what a patch is made of: two steps of a run, and what tells their files apart from others of the
// same names.
type Key struct {
	Run, From, To      string
	FilesFrom, FilesTo string
}

// The bounds of what is kept of patches.
const (
	maxPatches   = 4
	patchLingers = time.Minute
)

type leafLock struct{} // Kept.mu

func (leafLock) Rank() (int, string) { return locks.Volume + 940, "a leaf of fs/virtual" }

// Kept are the patches that were asked for last. The zero value has none.
type Kept struct {
	mu       locks.Mutex[leafLock]
	kept     []keptPatch // by last use
	sweeping *time.Timer // nil: there are none
	making   singleflight.Group
}

type keptPatch struct {
	key  Key
	p    *inspect.Patch
	used time.Time
}

// Find is the patch of a key, which has a user more. Callers of one key at once share what is made.
func (s *Kept) Find(ctx context.Context, key Key, make func() (*inspect.Patch, error)) (
	*inspect.Patch, error) {
	if p := s.known(key); p != nil {
		return p, nil
	}
	id := fmt.Sprintf("%q", key)
	for {
		_, err, shared := s.making.Do(id, func() (any, error) {
			p, err := make()
			if err == nil {
				s.keep(key, p)
			}
			return nil, err
		})
		if shared && errors.Is(err, context.Canceled) && ctx.Err() == nil {
			continue // another caller's end
		}
		if err != nil {
			return nil, err
		}
		if p := s.known(key); p != nil {
			return p, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// known is a kept patch that is right still, with a user more; nil: there is none.
func (s *Kept) known(key Key) *inspect.Patch {
	s.mu.Lock()
	var p *inspect.Patch
	if i := s.at(key); i >= 0 && s.kept[i].p.Retain() {
		k := s.kept[i]
		k.used = time.Now()
		s.kept = append(slices.Delete(s.kept, i, i+1), k)
		p = k.p
	}
	s.mu.Unlock()
	if p != nil && !p.Current() {
		p.Close()
		s.drop(func(k keptPatch) bool { return k.p == p })
		return nil
	}
	return p
}

func (s *Kept) at(key Key) int {
	return slices.IndexFunc(s.kept, func(k keptPatch) bool { return k.key == key })
}

// keep keeps a patch, in place of others.
func (s *Kept) keep(key Key, p *inspect.Patch) {
	s.drop(func(k keptPatch) bool { return k.key == key })
	s.mu.Lock()
	s.kept = append(s.kept, keptPatch{key, p, time.Now()})
	var oldest []keptPatch
	if over := len(s.kept) - maxPatches; over > 0 {
		oldest = slices.Clone(s.kept[:over])
		s.kept = slices.Delete(s.kept, 0, over)
	}
	if s.sweeping == nil {
		s.sweeping = time.AfterFunc(patchLingers, s.expire)
	}
	s.mu.Unlock()
	for _, k := range oldest {
		k.p.Close()
	}
}

// expire drops what nobody used for long.
func (s *Kept) expire() {
	s.drop(func(k keptPatch) bool { return time.Since(k.used) >= patchLingers })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sweeping = nil; len(s.kept) > 0 {
		s.sweeping = time.AfterFunc(patchLingers, s.expire)
	}
}

// Close drops all.
func (s *Kept) Close() { s.drop(func(keptPatch) bool { return true }) }

// drop drops those that which chooses.
func (s *Kept) drop(which func(keptPatch) bool) {
	s.mu.Lock()
	var gone []keptPatch
	s.kept = slices.DeleteFunc(s.kept, func(k keptPatch) bool {
		if which(k) {
			gone = append(gone, k)
			return true
		}
		return false
	})
	s.mu.Unlock()
	for _, k := range gone {
		k.p.Close()
	}
}
