package volume

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

// After a kill a store is in use before every file was looked at, and closed in order only afterwards: what
// was left to pack is queued.
func TestRepairBesideRequests(t *testing.T) {
	old := newRig(t)
	old.write("packed", random(300<<10, 1))
	old.packOut("packed")
	old.withoutPacking()
	old.write("queued", random(300<<10, 2))

	opened, said := make(chan struct{}), false
	r := openAtOnce(t, old.copyStore(), func(o *Options) {
		log := o.Log
		o.Log = func(level slog.Level, msg string, args ...any) {
			if !strings.Contains(msg, "not closed in order") { // which is said when all was looked at
				log(level, msg, args...)
				return
			}
			said = true
			select {
			case <-opened:
			case <-time.After(10 * time.Second):
				t.Error("the store is not in use before every file was looked at")
			}
		}
	})
	r.same("packed", random(300<<10, 1))
	st, err := r.Status(t.Context())
	if err != nil || !strings.Contains(st.Recovery, "not closed in order") {
		t.Errorf("status: %q, %v", st.Recovery, err)
	}
	close(opened)
	r.close()
	if !said {
		t.Error("it was closed before every file was looked at")
	}
	r = openRig(t, r.dir)
	<-r.surveyed
	if !r.lock.Before.Clean {
		t.Error("it was not closed in order")
	}
	r.sync()
	r.want("queued", both)
}

// Where the disk did not take something, a local copy may be wrong, and no request comes before it is known.
func TestRepairBeforeRequests(t *testing.T) {
	old := newRig(t)
	old.write("packed", random(300<<10, 1))
	old.sync()
	old.want("packed", both)
	if err := old.lock.Fails(); err != nil {
		t.Fatal(err)
	}
	r := openAtOnce(t, old.copyStore())
	select {
	case <-r.surveyed:
	default:
		t.Error("requests come before every file was looked at")
	}
	r.want("packed", packed)
}
