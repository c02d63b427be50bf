package control

import (
	"encoding/json"
	"net/http"
	"time"
)

// progressInterval is the shortest time between two progress lines.
const progressInterval = 50 * time.Millisecond

// stream runs do and writes its progress as it comes, then its result. do is never held up by a slow reader:
// a progress that could not be written yet gives way to the next.
func stream(do func(*http.Request, func(Progress)) (any, error)) http.HandlerFunc {
	return parted(func(r *http.Request, _ func(line) error, progress func(Progress)) (any, error) {
		return do(r, progress)
	})
}

// parted is stream of a result of which parts come before it. With these do waits for the reader.
func parted(do func(r *http.Request, part func(line) error, progress func(Progress)) (any,
	error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		enc := json.NewEncoder(w)
		flush := http.NewResponseController(w)

		latest := make(chan Progress, 1)
		parts := make(chan line)
		finished := make(chan line)
		go func() {
			v, err := do(r, func(l line) error {
				select {
				case parts <- l:
					return nil
				case <-r.Context().Done():
					return r.Context().Err()
				}
			}, func(p Progress) {
				select { // take back what was not written; there is one sender, so the send then succeeds
				case <-latest:
				default:
				}
				latest <- p
			})
			close(latest)
			if err != nil {
				finished <- line{Error: AsError(err)}
				return
			}
			finished <- line{Result: v}
		}()

		// Write errors are not looked at: they mean that the caller has gone, and then r's context ends do.
		progress := latest // nil: it is not time for the next
		var pause <-chan time.Time
		for {
			select {
			case p, ok := <-progress:
				if progress = nil; ok {
					_ = enc.Encode(line{Progress: &p})
					_ = flush.Flush()
					pause = time.After(progressInterval)
				}
			case <-pause:
				progress = latest
			case l := <-parts:
				_ = enc.Encode(l)
				if l.Step != nil { // nothing may come behind it for long
					_ = flush.Flush()
				}
			case l := <-finished:
				writeLast(enc, latest, l)
				return
			}
		}
	}
}

// writeLast writes the progress that was still waiting, if any, and the line that ends the stream.
func writeLast(enc *json.Encoder, latest <-chan Progress, l line) {
	if p, ok := <-latest; ok {
		_ = enc.Encode(line{Progress: &p})
	}
	_ = enc.Encode(l)
}
