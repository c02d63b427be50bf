// Package idle does low-priority work on files that no program has touched for ten seconds.
//
// A Worker remembers up to MaxResting files one by one; when there are more it walks the whole tree, at most
// a twentieth of all time. It sees to one file after the other, in one goroutine. Checksums is the Worker
// that makes the checksums of plain files, and takes half of a core at most; artifact ids are computed by
// another (fs/volume's identifier).
//
// State: under Worker.mu, which is a leaf. What is remembered is pinned.
package idle
