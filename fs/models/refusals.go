package models

import "sync/atomic"

// refusals knows the last query, or attribute, that was refused.
type refusals struct{ last atomic.Pointer[refusal] }

// refusal is why a query, or an attribute, was refused.
type refusal struct {
	what string
	err  error
}

// Judge notes whether a query, or an attribute, was refused, and why.
func (r *refusals) Judge(what string, err error) {
	if err != nil {
		r.last.Store(&refusal{what, err})
	} else if last := r.last.Load(); last != nil && last.what == what {
		r.last.CompareAndSwap(last, nil)
	}
}

// Refused is the last query, or attribute, that was refused, and why; "" when it was put right.
func (r *refusals) Refused() string {
	if last := r.last.Load(); last != nil {
		return last.what + ": " + last.err.Error()
	}
	return ""
}
