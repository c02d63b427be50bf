package remote

import (
	"testing"
	"time"
)

func TestSpan(t *testing.T) {
	for in, want := range map[string]time.Duration{"7d": 7 * 24 * time.Hour, "0": 0, "90m": 90 * time.Minute,
		"1.5h": 90 * time.Minute, "0d": 0} {
		var s Span
		if err := s.Set(in); err != nil || time.Duration(s) != want {
			t.Errorf("%s: %s, %v", in, s.String(), err)
		}
		if again := Span(0); again.Set(s.String()) != nil || again != s {
			t.Errorf("%s is printed as %s", in, s.String())
		}
	}
	for _, in := range []string{"", "d", "7", "-1d", "-1h", "1.5d", "7dd", "99999999d"} {
		if err := new(Span).Set(in); err == nil {
			t.Errorf("%q was taken", in)
		}
	}
}
