//go:build !race

package source

const slow = false
