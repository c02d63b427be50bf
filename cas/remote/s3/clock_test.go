package s3_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/patient"
	"ckptfs/cas/remote/s3"
	"ckptfs/cas/remote/s3/s3test"
)

// skewed is an engine whose clock differs from this machine's, and that refuses signatures of another time.
type skewed struct {
	http.Handler
	by      time.Duration
	refused int
}

func (s *skewed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now().Add(s.by)
	w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
	signed, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil || signed.Sub(now).Abs() > 15*time.Minute {
		s.refused++
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, "<Error><Code>RequestTimeTooSkewed</Code></Error>")
		return
	}
	s.Handler.ServeHTTP(w, r)
}

// A clock that is off by an hour costs one request.
func TestClockOff(t *testing.T) {
	s3test.Credentials(t)
	for _, by := range []time.Duration{time.Hour, -time.Hour, 400 * 24 * time.Hour} {
		mem := &bucket.Mem{Now: func() time.Time { return time.Now().Add(by) }}
		engine := &skewed{Handler: &s3test.Engine{Bucket: mem}, by: by}
		server := httptest.NewServer(engine)
		b := patient.New(open(t, s3.Config{Bucket: s3test.Name, Endpoint: server.URL, PathStyle: true}),
			patient.Options{Requests: 1, For: time.Minute})
		for i := range 3 {
			key := fmt.Sprint("k", i)
			_, err := b.Put(t.Context(), key, bucket.Bytes([]byte("body")), bucket.Cond{Absent: true})
			if err != nil {
				t.Errorf("%v: %v", by, err)
			}
			if _, _, err := bucket.Read(t.Context(), b, key, 100, ""); err != nil {
				t.Errorf("%v: %v", by, err)
			}
		}
		if engine.refused != 1 {
			t.Errorf("%v: %d requests were refused", by, engine.refused)
		}
		server.Close()
	}
}
