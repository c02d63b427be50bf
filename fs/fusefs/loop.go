package fusefs

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"ckptfs/fs/handover"
)

const (
	smallRequest = 4096 // at most; such are copied out of the buffer that they were read into
	// crashesAllowed is how often a process may have crashed while it had a request in hand.
	crashesAllowed = 2
	maxIdle        = 3 // readers that wait for requests at a time; one more may find out that it is too many
)

// loan is what bytes are answered from where they lie.
type loan interface {
	Parts() [][]byte
	Done()
}

// reader answers READ: with bytes lent, or with those that it put into the buffer of n bytes, or fewer, that
// it had of room.
type reader interface {
	read(in *fuse.ReadIn, room func(n int) []byte) (loan, []byte, fuse.Status)
}

// loop takes a mount's requests from its device and answers them.
//
// Each of its readers takes a request, answers it and takes the next one. Before it begins to answer it
// starts another reader if none is waiting, so that any number of requests can be in hand. While one waits
// for something it holds no large buffer, unless its bytes fill one.
//
// READ is answered here, without a copy. The rest goes through go-fuse.
type loop struct {
	dev  *device
	ps   *fuse.ProtocolServer // has answered INIT
	file reader
	log  func(level slog.Level, msg string, args ...any)

	memory   *handover.Memory       // in which it is written down what is in hand
	answered func(unique uint64)    // called when the kernel has an answer
	refused  func(h *fuse.InHeader) // called before a request is refused that was under way in crashes

	takenOver bool          // there may be requests that the kernel sends again
	inOrder   sync.Mutex    // held by who reads them
	leaving   atomic.Bool   // what is read from now on is left to the next process
	dead      chan struct{} // closed when no more requests come: who waits for something need wait no longer
	ended     sync.Once
	idle      atomic.Int64 // readers that wait for a request, or take in a FORGET
	running   sync.WaitGroup
	large     requestBuffers
	small     scratch
	reads     inHand
	rounds    rounds
	fresh     event // a request came that the kernel had not sent before
}

// answerInit has go-fuse settle what an INIT asks for and returns the answer, which is still to be written.
func answerInit(ps *fuse.ProtocolServer, init []byte) ([]byte, error) {
	answer := make([]byte, fewBytes)
	n, st := ps.HandleRequest([][]byte{init}, [][]byte{answer})
	h := as[fuse.OutHeader](answer[:n])
	if st.Ok() && h == nil {
		st = fuse.EIO
	}
	if st.Ok() {
		st = fuse.Status(-h.Status)
	}
	if !st.Ok() {
		return answer[:n], fmt.Errorf("init: %s", st)
	}
	return answer[:n], nil
}

// start begins to serve.
func (l *loop) start() {
	l.idle.Add(1)
	l.running.Add(1)
	go l.serve()
}

// wait returns when the mount is gone, however it went, and every request in hand was answered. Then the
// device is closed.
func (l *loop) wait() {
	l.running.Wait()
	l.end()
	l.dev.close()
}

func (l *loop) end() { l.ended.Do(func() { close(l.dead) }) }

// serve is a reader.
func (l *loop) serve() {
	defer l.running.Done()
	flight := l.memory.Flights().Take() // not by defer: what a crash leaves is for the next process
	for {
		buf := l.large.get()
		n, round, err := l.next(buf.in)
		if err != nil {
			l.large.put(buf)
			if !errors.Is(err, unix.ENODEV) {
				l.log(slog.LevelError, "the kernel's requests cannot be read", "reason", err)
			}
			l.end()
			flight.Release()
			return
		}
		if l.serveOne(flight, buf, n, round) && l.idle.Add(1) > maxIdle {
			l.idle.Add(-1)
			flight.Release()
			return
		}
	}
}

// next reads a request into buf, and has it enter a round. What the kernel sends again comes before what is
// fresh: one reader at a time until then, so that all of it has entered when the first fresh request does.
func (l *loop) next(buf []byte) (n int, round uint32, err error) {
	if l.takenOver && !l.fresh.did.Load() {
		l.inOrder.Lock()
		defer l.inOrder.Unlock()
	}
	n, err = l.dev.read(buf)
	if err != nil {
		return 0, 0, err
	}
	round = l.rounds.enter()
	if l.leaving.Load() {
		l.rounds.leave(round)
		select {} // the kernel sends it again
	}
	return n, round, nil
}

// serveOne answers the request that is the first n bytes of buf, which it gives back, and leaves its round.
// It says whether this reader was not idle meanwhile.
func (l *loop) serveOne(flight *handover.Flight, buf *requestBuffer, n int, round uint32) (busy bool) {
	defer l.rounds.leave(round)
	req := buf.in[:n]
	if h := as[fuse.InHeader](req); h == nil {
		l.large.put(buf)
		l.log(slog.LevelError, "the kernel sent too short a request", "bytes", n)
		return false
	} else if n <= smallRequest && h.Opcode != opWrite {
		own := l.small.get(n)
		defer l.small.put(own)
		req = (*own)[:copy(*own, req)]
		l.large.put(buf) // it is another reader's now, or unmapped
	} else {
		defer l.large.put(buf)
	}
	h := as[fuse.InHeader](req)
	op := h.Opcode
	if unanswered(op) { // they come in any number: no reader is started for more of them
		l.handle(req)
		return false
	}
	if l.idle.Add(-1) == 0 {
		l.start()
	}
	flight.Begin(h.Unique &^ resent) // a panic does not end it: the next process counts it
	if h.Unique&resent == 0 {
		if op != opInterrupt {
			l.fresh.Do()
		}
	} else if l.memory.Crashes(h.Unique&^resent) >= crashesAllowed {
		l.log(slog.LevelError, "a request was under way each time that the daemon crashed; it fails now", "opcode", op)
		l.refused(h)
		l.answer(h, answerHeader(h.Unique, fuse.EIO, 0))
		l.memory.Journal().Find(h.Unique &^ resent).Free()
		flight.End()
		return true
	}
	fault(op, "read")
	l.handle(req)
	flight.End()
	return true
}

// handle has a request done, and answers it.
func (l *loop) handle(req []byte) {
	h := as[fuse.InHeader](req)
	switch h.Opcode {
	case opRead:
		if in := as[fuse.ReadIn](req); in != nil {
			l.read(in)
			return
		}
	case opInterrupt:
		// A READ ends soon. An answer would have the kernel send the same again at once.
		if in := as[fuse.InterruptIn](req); in != nil && l.reads.has(in.Unique) {
			return
		}
	}
	out := l.small.get(answerRoom(req, h.Opcode))
	defer l.small.put(out)
	n, st := l.ps.HandleRequest([][]byte{req}, [][]byte{*out})
	switch {
	case !st.Ok():
		l.answer(h, answerHeader(h.Unique, st, 0))
	case n > 0:
		l.answer(h, (*out)[:n])
	}
}

// read answers a READ.
func (l *loop) read(in *fuse.ReadIn) {
	l.reads.add(in.Unique)
	defer l.reads.remove(in.Unique)
	var own *[]byte
	lent, data, st := l.file.read(in, func(n int) []byte {
		own = l.small.get(n)
		return (*own)[:n]
	})
	if own != nil {
		defer l.small.put(own)
	}
	switch {
	case !st.Ok():
		l.answer(&in.InHeader, answerHeader(in.Unique, st, 0))
	case lent != nil:
		defer lent.Done()
		n := 0
		for _, p := range lent.Parts() {
			n += len(p)
		}
		l.answer(&in.InHeader, append([][]byte{answerHeader(in.Unique, st, n)}, lent.Parts()...)...)
	case len(data) == 0:
		l.answer(&in.InHeader, answerHeader(in.Unique, st, 0))
	default:
		l.answer(&in.InHeader, answerHeader(in.Unique, st, len(data)), data)
	}
}

// answer tells the kernel what became of a request: here its answer is written, whichever way it was made.
func (l *loop) answer(h *fuse.InHeader, parts ...[]byte) {
	fault(h.Opcode, "done")
	err := l.dev.write(parts...)
	fault(h.Opcode, "answered")
	// ENOENT: it waits no more, as it was killed or the mount is gone
	if err != nil && !errors.Is(err, unix.ENOENT) {
		l.log(slog.LevelError, "the kernel did not take an answer", "opcode", h.Opcode, "reason", err)
	}
	l.answered(h.Unique)
}
