//go:build race

package prefix

// The race detector makes everything slow, and what takes long here is not concurrent.
const slow = 10
