package cas

import "runtime"

// Processors is how many goroutines can compute at a time: GOMAXPROCS as the process began. The daemon raises
// that, for those that wait for the kernel.
var Processors = runtime.GOMAXPROCS(0)
