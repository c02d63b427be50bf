//go:build !amd64

package fusefs

func oldMakesNew(int, func(int) uint64) bool { return false }
