package sweep_test

import "testing"

// This is the protocol as such, without code: all that can happen to a few segments, heads and processes. Any
// process may stop for ever behind any of its steps, and a request may be applied long after it was sent, or
// twice.

// explored are the states that can be reached from a start, up to the first that is bad.
type explored struct {
	states int
	bad    string
}

// reach looks at all states, the nearest first.
func reach[S comparable](start S, bad func(*S) string, next func(s S, add func(S))) explored {
	seen := map[S]struct{}{start: {}}
	for fresh := []S{start}; len(fresh) > 0; {
		now := fresh
		fresh = nil
		for i := range now {
			if what := bad(&now[i]); what != "" {
				return explored{len(seen), what}
			}
			next(now[i], func(s S) {
				if _, ok := seen[s]; !ok {
					seen[s] = struct{}{}
					fresh = append(fresh, s)
				}
			})
		}
	}
	return explored{len(seen), ""}
}

const (
	segments    = 7
	mostTries   = 2
	modelPushes = 2
	modelGCs    = 2
	modelHeads  = 1 + modelPushes // the first is of the one who owns segment 0 and deletes it
)

// modelHead is a head: what it refers to is a mask of segments.
type modelHead struct {
	exists bool
	etag   uint16 // unique: 8 times a count, and who
	stamp  uint8
	refs   uint8
}

// Requests that may be applied late.
const (
	casHead = iota + 1
	putSegment
	deleteSegment
	createHead
)

type modelRequest struct {
	kind, target uint8
	if_, etag    uint16
	refs, stamp  uint8
}

// key puts requests in an order, so that what differs in it alone is one state.
func (r modelRequest) key() uint64 {
	return uint64(r.kind)<<56 | uint64(r.target)<<48 | uint64(r.if_)<<32 | uint64(r.etag)<<16 |
		uint64(r.refs)<<8 | uint64(r.stamp)
}

type modelPusher struct {
	at    uint8
	etag  uint16
	stamp uint8
	refs  uint8
	gone  uint8 // segments that are condemned, as far as it knows
	knows uint8 // the epochs that it read of
	dep   uint8 // one more than the segment that it relies on
	own   uint8 // one more than its own
	tries uint8
	sent  uint16
}

type modelGC struct {
	at, i    uint8
	mark     uint8
	condemns uint8
	epoch    uint8
	etag     uint16
	head     modelHead
	stamped  uint8
	listed   uint8
}

type modelState struct {
	there   uint8 // segments
	next    uint8 // the next that is made
	heads   [modelHeads]modelHead
	epoch   uint8
	named   [modelGCs + 1]uint8 // by epochs
	late    [2]modelRequest
	pushers [modelPushes]modelPusher
	gcs     [modelGCs]modelGC
	deleter struct {
		at, stamp uint8
		etag      uint16
	}
}

// model is the protocol, or what somebody may think is as good.
type model struct {
	pushers, gcs, late int

	noStamps, noSecondMark, secondMarkFirst, stateFirst, oldNames bool
	blindRetry, ownTrusted, noIfMatch, lateRegistration           bool
	knownTrusted                                                  bool
}

func (m model) explore() explored {
	s := modelState{there: 1, next: 1}
	s.heads[0] = modelHead{true, 8, 0, 1}
	s.heads[1] = modelHead{true, 8, 0, 0}
	return reach(s, modelLoss, m.steps)
}

// modelLoss says which head refers to what is gone.
func modelLoss(s *modelState) string {
	for i, h := range s.heads {
		if h.exists && h.refs&^s.there != 0 {
			return "head " + string(rune('0'+i)) + " needs what is gone"
		}
	}
	return ""
}

// etag is what a commit by who on top of another one gets. Only one of those on top of it is done.
func etag(on, who uint16) uint16 { return on&^7 + 8 + who }

// apply does a request, if its condition holds.
func (m model) apply(s *modelState, r modelRequest) bool {
	switch r.kind {
	case casHead:
		h := &s.heads[r.target]
		if !h.exists || h.etag != r.if_ && !m.noIfMatch {
			return false
		}
		h.etag, h.refs, h.stamp = r.etag, r.refs, r.stamp
	case createHead:
		h := &s.heads[r.target]
		if h.exists {
			return false
		}
		*h = modelHead{true, r.etag, r.stamp, r.refs}
	case putSegment:
		s.there |= 1 << r.target
	case deleteSegment:
		s.there &^= 1 << r.target
	}
	return true
}

// leave has a request applied late, or never; false: as many as may be are late.
func (m model) leave(s *modelState, r modelRequest) bool {
	for i := range s.late[:m.late] {
		if s.late[i].kind == 0 {
			s.late[i] = r
			return true
		}
	}
	return false
}

func (s *modelState) condemned() (all uint8) {
	for _, e := range s.named[:s.epoch+1] {
		all |= e
	}
	return all
}

func (m model) steps(s modelState, add func(modelState)) {
	to := func(n modelState) {
		if n.late[0].key() < n.late[1].key() {
			n.late[0], n.late[1] = n.late[1], n.late[0]
		}
		if n.late[0] == n.late[1] {
			n.late[1] = modelRequest{}
		}
		add(n)
	}
	for i, r := range s.late {
		if r.kind != 0 {
			n := s
			n.late[i] = modelRequest{}
			m.apply(&n, r)
			to(n)
		}
	}
	m.deletes(s, to)
	for p := range m.pushers {
		m.push(s, p, to)
	}
	for g := range m.gcs {
		m.collect(s, g, to)
	}
}

// deletes has the owner of segment 0 read its head, and write it without that.
func (m model) deletes(s modelState, to func(modelState)) {
	d := &s.deleter
	switch d.at {
	case 0:
		d.etag, d.stamp, d.at = s.heads[0].etag, s.heads[0].stamp, 1
		to(s)
	case 1:
		if d.at = 0; m.apply(&s, modelRequest{casHead, 0, d.etag, etag(d.etag, 1), 0, d.stamp}) {
			d.at = 2
		}
		to(s)
	}
}

// One pusher, one deleter, one collector and two late requests lose nothing, whatever happens; each change to
// the protocol does.
func TestModel(t *testing.T) {
	one := model{pushers: 1, gcs: 1, late: 2}
	if got := one.explore(); got.bad != "" || got.states < 90_000 {
		t.Errorf("the protocol: %+v", got)
	} else {
		t.Logf("%d states", got.states)
	}
	for name, change := range map[string]func(m *model){
		"no stamps":                           func(m *model) { m.noStamps = true },
		"no second mark":                      func(m *model) { m.noSecondMark = true },
		"second mark before the stamps":       func(m *model) { m.secondMarkFirst = true },
		"gc/state before the head":            func(m *model) { m.stateFirst = true },
		"objects put again under their names": func(m *model) { m.oldNames = true },
		"retry without looking":               func(m *model) { m.blindRetry = true },
		"own uploads trusted":                 func(m *model) { m.ownTrusted = true },
		"epochs of meanwhile not looked at":   func(m *model) { m.knownTrusted = true },
		"an engine that ignores If-Match":     func(m *model) { m.noIfMatch = true },
		"registering with the first commit": func(m *model) {
			*m = model{pushers: 2, gcs: 1, late: 1, lateRegistration: true}
		},
	} {
		m := one
		change(&m)
		if got := m.explore(); got.bad == "" {
			t.Errorf("%s: nothing is lost in %d states", name, got.states)
		} else {
			t.Logf("%s: %s after %d states", name, got.bad, got.states)
		}
	}
}
