//go:build race

package source

// The race detector makes everything slow, and what takes long here is not concurrent.
const slow = true
