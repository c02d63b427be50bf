//go:build lockrank && (amd64 || arm64)

package locks

// goroutine is the address of the runtime's structure of the calling goroutine, which no other has while it
// runs. Nothing reads what is there.
func goroutine() uintptr
