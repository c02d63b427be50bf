//go:build !race

package prefix

const slow = 1
