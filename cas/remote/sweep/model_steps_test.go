package sweep_test

// push is a step of a pusher: it registers, reads its head, reads what is condemned, uploads, and commits.
func (m model) push(s modelState, p int, to func(modelState)) {
	q := &s.pushers[p]
	head := &s.heads[p+1]
	who := uint16(2 + p)
	late := p == 1 && m.lateRegistration
	switch q.at {
	case 0:
		if p == 1 && !late {
			m.apply(&s, modelRequest{kind: createHead, target: 2, etag: etag(0, who)})
		}
		q.at = 1
		to(s)
	case 1:
		switch {
		case m.stateFirst:
			q.gone, q.stamp = s.condemned(), s.epoch
		case !late || head.exists:
			q.etag, q.stamp, q.refs = head.etag, head.stamp, head.refs
		}
		q.at = 2
		to(s)
	case 2:
		switch {
		case m.stateFirst:
			q.etag, q.stamp, q.refs = head.etag, max(q.stamp, head.stamp), head.refs
		case m.blindRetry && q.tries > 0:
		default:
			first := s // uploads by what it knows, and reads what is condemned then
			first.pushers[p].at = 6
			to(first)
			q.gone, q.stamp, q.knows = s.condemned(), max(q.stamp, s.epoch), s.epoch
		}
		q.at = 3
		to(s)
	case 3:
		m.upload(s, p, 4, to)
	case 6:
		m.upload(s, p, 7, to)
	case 7:
		if q.at = 4; q.knows < s.epoch && !m.knownTrusted {
			q.at = 1
		}
		q.gone, q.stamp, q.knows = s.condemned(), max(q.stamp, s.epoch), s.epoch
		to(s)
	case 4:
		refs := uint8(1<<(q.dep-1) | 1<<(q.own-1))
		r := modelRequest{casHead, uint8(p + 1), q.etag, etag(q.etag, who), refs, q.stamp}
		if late && !head.exists && q.etag == 0 {
			r.kind = createHead
		}
		lost := s
		lost.pushers[p].sent, lost.pushers[p].at = r.etag, 5
		if m.leave(&lost, r) {
			to(lost)
		}
		q.ends(m.apply(&s, r))
		to(s)
	case 5:
		q.ends(head.exists && head.etag == q.sent)
		to(s)
	}
}

// ends: its commit was done; else it begins again, some times.
func (q *modelPusher) ends(committed bool) {
	if q.at = 9; committed {
		return
	}
	if q.tries++; q.tries <= mostTries {
		q.at = 1
	}
}

// upload chooses what is relied on, and puts what cannot be. Behind it is the step next.
func (m model) upload(s modelState, p int, next uint8, to func(modelState)) {
	q := &s.pushers[p]
	gone := func(segment uint8, own bool) bool {
		return !(m.blindRetry && q.tries > 0) && !(own && m.ownTrusted) && q.gone&(1<<(segment-1)) != 0
	}
	var put uint8
	putNew := func(segment *uint8) bool {
		if !m.oldNames || *segment == 0 {
			if s.next >= segments {
				return false
			}
			s.next++
			*segment = s.next
		}
		m.apply(&s, modelRequest{kind: putSegment, target: *segment - 1})
		if put == 0 {
			put = *segment
		}
		return true
	}
	if q.dep == 0 {
		q.dep = 1 // as an index said
	}
	if gone(q.dep, q.dep != 1) && !putNew(&q.dep) || (q.own == 0 || gone(q.own, true)) && !putNew(&q.own) {
		return
	}
	q.at = next
	to(s)
	if put > 0 && m.leave(&s, modelRequest{kind: putSegment, target: put - 1}) { // a client sent it twice
		to(s)
	}
}

// collect is a step of a collector.
func (m model) collect(s modelState, g int, to func(modelState)) {
	c := &s.gcs[g]
	switch c.at {
	case 0: // mark
		if c.i == modelHeads {
			c.at = 1
		} else {
			c.read(&s)
		}
	case 1: // list
		c.condemns = s.there &^ c.mark
		if c.at = 2; c.condemns == 0 {
			c.at = 9
		}
	case 2: // condemn
		s.epoch++
		c.epoch = s.epoch
		s.named[s.epoch] = c.condemns
		if c.at, c.i = 3, 0; m.noStamps || m.secondMarkFirst {
			c.at = 5
		}
	case 3: // list heads
		for i, h := range s.heads {
			if h.exists {
				c.listed |= 1 << i
			}
		}
		c.at, c.i = 4, 0
	case 4:
		m.stamp(&s, c, uint16(4+g))
	case 5: // mark again
		m.markAgain(&s, c)
	case 6:
		m.remove(s, g, to)
		return
	default:
		return
	}
	to(s)
}

func (c *modelGC) read(s *modelState) {
	if h := s.heads[c.i]; h.exists {
		c.mark |= h.refs
	}
	c.i++
}

// stamp reads the next head that has to be stamped, or writes what it has read.
func (m model) stamp(s *modelState, c *modelGC, who uint16) {
	for c.i < modelHeads && (c.listed&(1<<c.i) == 0 || c.stamped&(1<<c.i) != 0) {
		c.i++
	}
	if c.i == modelHeads {
		if c.at, c.i = 5, 0; m.secondMarkFirst {
			c.at = 6
		}
		return
	}
	h := s.heads[c.i]
	switch {
	case c.etag == 0 && h.stamp >= c.epoch:
		c.stamped |= 1 << c.i
	case c.etag == 0:
		c.etag, c.head = h.etag, h
	default:
		if m.apply(s, modelRequest{casHead, c.i, c.etag, etag(c.etag, who), c.head.refs, c.epoch}) {
			c.stamped |= 1 << c.i
		}
		c.etag, c.head = 0, modelHead{}
	}
}

func (m model) markAgain(s *modelState, c *modelGC) {
	if c.i == 0 {
		c.mark = 0
	}
	switch {
	case m.noSecondMark:
		c.at = 6
	case c.i < modelHeads:
		c.read(s)
	default:
		c.condemns &^= c.mark
		c.mark, c.i = 0, 0
		if c.at = 6; m.secondMarkFirst && c.stamped == 0 {
			c.at = 3
		}
	}
}

// remove deletes a segment, at once or late.
func (m model) remove(s modelState, g int, to func(modelState)) {
	c := &s.gcs[g]
	for i := range uint8(segments) {
		if c.condemns&(1<<i) == 0 {
			continue
		}
		c.condemns &^= 1 << i
		r := modelRequest{kind: deleteSegment, target: i}
		late := s
		if m.leave(&late, r) {
			to(late)
		}
		m.apply(&s, r)
		to(s)
		return
	}
	c.at = 9
	to(s)
}
