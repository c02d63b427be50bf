// Package residency decides which packed files keep a local copy of their bytes.
//
// LRU bounds the resident bytes: the least recently opened go first, and all that can go while the disk is
// nearly full. The decision is in LRU.Shrink; whether one file may be evicted is content.File.Evict's to say.
// It knows files by their inodes alone, and pins none but the few that could not be evicted, or are to be.
// Hydrator restores the bytes of packed files that proved hot (opened twice, or read for the most part),
// while no program reads packed files. Giver has files that are read once leave memory. Evict and Hydrate are
// the commands of those names.
//
// State: LRU, Hydrator and Giver, each under its one mutex, which is a leaf. What is queued for the Hydrator
// or the Giver is pinned.
package residency
