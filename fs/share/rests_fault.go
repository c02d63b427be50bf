//go:build fault

package share

import "time"

// restsFor is as short as a test of a mount waits.
const restsFor = time.Second
