//go:build !amd64

package rans

import "ckptfs/cas/codectest"

func levels(f func(how string)) { codectest.Levels(f) }
