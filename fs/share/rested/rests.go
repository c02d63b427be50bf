//go:build !fault

package rested

import "time"

// restsFor is for how long nobody used what is found: what is saved next is stored as its difference from
// what was saved last, and that needs it here.
const restsFor = time.Hour
