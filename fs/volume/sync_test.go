package volume

import (
	"errors"
	"strings"
	"testing"
)

// What could be packed is durable after a sync, also beside a file that could not be.
func TestSyncBesideFailure(t *testing.T) {
	r := newRig(t)
	r.content.Step = func(what string) error {
		if what == "pack: record" {
			return errors.New("broken")
		}
		return nil
	}
	r.write("f", random(100<<10, 1))
	r.write("small", []byte("small"))
	err := r.Sync(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "f could not be packed: broken") {
		t.Error(err)
	}
	if r.queue.Status().Unsynced {
		t.Error("what stays plain is not durable")
	}
}

// A file that could not be evicted is packed: a sync has nothing to say of it.
func TestSyncAfterFailedEviction(t *testing.T) {
	r := newRig(t, hotSize(0))
	r.content.Step = func(what string) error {
		if strings.HasPrefix(what, "hollow: ") {
			return errors.New("broken")
		}
		return nil
	}
	r.write("f", random(100<<10, 1))
	r.sync()
	r.eventually("the eviction fails", func() bool {
		s, err := r.Status(t.Context())
		return err == nil && len(s.Failures) > 0
	})
	r.sync()
}
