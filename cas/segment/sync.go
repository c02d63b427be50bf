package segment

// Finished is how many records were written in full so far.
func (w *Writer) Finished() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.finished
}

// Durable is how many of the records that were finished first are durable, with the name of the segment.
func (w *Writer) Durable() uint64 { return w.durable.Load() }

// Behind reports whether limit bytes were written since the last fsync began, and tells one caller alone so.
func (w *Writer) Behind(limit int64) bool {
	return w.behind.Load() >= limit && w.asked.CompareAndSwap(false, true)
}

// AwaitIdle waits until every slot is finished.
func (w *Writer) AwaitIdle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.busy) > 0 {
		w.idle.Wait()
	}
}

// Failed reports whether an fsync failed.
func (w *Writer) Failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil
}

// Sync makes the records durable that were finished up to the n-th, and all others that are finished when its
// fsync begins. Those who come meanwhile share the next fsync.
//
// After an error the segment must not be trusted any more: neither what was written since the last Sync that
// succeeded, nor a later fsync, which the kernel lets succeed. So every later Sync and Finish fails, too.
func (w *Writer) Sync(n uint64) error {
	w.syncing.Lock() // fsync tells of a failed write once: later callers have to hear of it from here
	defer w.syncing.Unlock()
	w.mu.Lock()
	finished, err := w.finished, w.err
	if err != nil || w.sealed || n <= w.Durable() { // what is not durable of a sealed one was taken back
		w.mu.Unlock()
		return err
	}
	w.behind.Store(0)
	w.asked.Store(false)
	w.mu.Unlock()
	if err = w.f.Sync(); err == nil && w.Durable() == 0 {
		err = w.fs.SyncDir(w.dir)
	}
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err = err
		return err
	}
	w.durable.Store(finished)
	return nil
}
