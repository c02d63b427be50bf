package s3_test

import (
	"fmt"
	"net/http"
	"testing"

	"ckptfs/cas/remote/bucket"
)

// What a bucket keeps of older versions is counted page by page; a bucket without versions is not listed.
func TestKept(t *testing.T) {
	version := func(size int, latest bool) string {
		return fmt.Sprintf("<Version><Key>d/1</Key><Size>%d</Size><IsLatest>%v</IsLatest></Version>", size, latest)
	}
	more := "<IsTruncated>true</IsTruncated><NextKeyMarker>d/1</NextKeyMarker><NextVersionIdMarker>v</NextVersionIdMarker>"
	for _, c := range []struct {
		name, status string
		pages        map[string]string // by key marker
		want         bucket.Kept
	}{
		{"never versioned", "", nil, bucket.Kept{}},
		{"versions", "<Status>Enabled</Status>", map[string]string{
			"":    version(5, true) + version(7, false) + more,
			"d/1": version(11, false)}, bucket.Kept{Versioned: true, Objects: 2, Bytes: 18}},
		{"suspended", "<Status>Suspended</Status>", map[string]string{"": version(7, false)},
			bucket.Kept{Versioned: true, Objects: 1, Bytes: 7}},
		{"the same page for ever", "<Status>Enabled</Status>", map[string]string{"": more, "d/1": more},
			bucket.Kept{Versioned: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if q := r.URL.Query(); q.Has("versioning") {
					fmt.Fprintf(w, "<VersioningConfiguration>%s</VersioningConfiguration>", c.status)
				} else if page, ok := c.pages[q.Get("key-marker")]; q.Has("versions") && ok {
					fmt.Fprintf(w, "<ListVersionsResult>%s</ListVersionsResult>", page)
				} else {
					t.Errorf("%s was asked for", r.URL)
				}
			})
			got, err := b.Kept(t.Context())
			if err != nil || *got != c.want {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	for status, code := range map[int]string{http.StatusForbidden: "AccessDenied",
		http.StatusNotImplemented: "NotImplemented"} {
		b := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
		})
		if _, err := b.Kept(t.Context()); (err != nil) != (code == "AccessDenied") {
			t.Errorf("%s: %v", code, err)
		}
	}
}
