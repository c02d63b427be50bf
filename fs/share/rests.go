//go:build !fault

package share

import "time"

// restsFor is for how long nobody used what Spare drops: what is saved next is stored as its difference from
// what was saved last, and that needs it here.
const restsFor = time.Hour
