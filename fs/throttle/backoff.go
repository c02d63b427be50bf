package throttle

import "time"

const (
	firstBackoff = time.Second
	maxBackoff   = time.Minute
)

// Backoff is after how long background work that failed is tried again, having been tried so often before.
func Backoff(attempts int) time.Duration { return min(firstBackoff<<min(attempts, 10), maxBackoff) }
