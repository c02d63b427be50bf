//go:build fault

package rested

import "time"

// restsFor is as short as a test of a mount waits.
const restsFor = time.Second
