//go:build !race

package graph

const slow = false
