// Package s3test puts a bucket.Bucket behind HTTP, as an engine that speaks as much S3 as package s3 does.
// It checks no signatures.
package s3test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/s3"
)

// pageSize is how many keys a page of a listing has.
const pageSize = 1000

// Name is the name of the bucket.
const Name = "bucket"

// Engine is an engine with one bucket, addressed by path.
type Engine struct {
	Bucket bucket.Bucket
}

// Start runs an engine until the test ends and returns how to open its bucket.
func Start(t testing.TB, b bucket.Bucket) s3.Config {
	server := httptest.NewServer(&Engine{Bucket: b})
	t.Cleanup(server.Close)
	return s3.Config{Bucket: Name, Endpoint: server.URL, Region: "us-east-1", PathStyle: true}
}

// Credentials sets some for the time of a test, and keeps others from being found.
func Credentials(t testing.TB) {
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
	t.Setenv("AWS_CONFIG_FILE", "/nonexistent/config")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/"+Name)
	key := strings.TrimPrefix(rest, "/")
	w.Header().Set("Server", "s3test")
	switch {
	case !ok:
		fail(w, http.StatusNotFound, "NoSuchBucket")
	case key != "" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		e.get(w, r, key)
	case key != "" && r.Method == http.MethodPut:
		e.put(w, r, key)
	case key == "" && r.Method == http.MethodPost && r.URL.Query().Has("delete"):
		e.delete(w, r)
	case key == "" && r.Method == http.MethodGet && r.URL.Query().Get("list-type") == "2":
		e.list(w, r)
	default:
		fail(w, http.StatusNotImplemented, "NotImplemented")
	}
}

// answers are the status and the code for each kind of error.
var answers = map[error]struct {
	status int
	code   string
}{
	bucket.ErrNotFound:     {http.StatusNotFound, "NoSuchKey"},
	bucket.ErrUnchanged:    {http.StatusNotModified, ""},
	bucket.ErrPrecondition: {http.StatusPreconditionFailed, "PreconditionFailed"},
	bucket.ErrConflict:     {http.StatusConflict, "ConditionalRequestConflict"},
	bucket.ErrRange:        {http.StatusRequestedRangeNotSatisfiable, "InvalidRange"},
	bucket.ErrDamaged:      {http.StatusBadRequest, "BadDigest"},
	bucket.ErrDenied:       {http.StatusForbidden, "AccessDenied"},
	bucket.ErrArchived:     {http.StatusForbidden, "InvalidObjectState"},
	bucket.ErrBusy:         {http.StatusServiceUnavailable, "SlowDown"},
	bucket.ErrFull:         {http.StatusInsufficientStorage, "QuotaExceeded"},
	bucket.ErrDoubt:        {http.StatusInternalServerError, "InternalError"},
}

func refuse(w http.ResponseWriter, err error) {
	var e *bucket.Error
	if errors.As(err, &e) {
		if a, ok := answers[e.Kind]; ok {
			fail(w, a.status, a.code)
			return
		}
	}
	fail(w, http.StatusInternalServerError, "InternalError")
}

func fail(w http.ResponseWriter, status int, code string) {
	if status == http.StatusNotModified {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
}

func quoted(v bucket.Version) string { return `"` + string(v) + `"` }

func unquoted(s string) bucket.Version { return bucket.Version(strings.Trim(s, `"`)) }

func (e *Engine) get(w http.ResponseWriter, r *http.Request, key string) {
	var off, n, last int64 = 0, bucket.All, -1
	ranged := r.Header.Get("Range")
	switch {
	case r.Method == http.MethodHead:
		n = 0
	case ranged != "":
		if _, err := fmt.Sscanf(ranged, "bytes=%d-%d", &off, &last); err == nil {
			n = last - off + 1
		}
	}
	body, info, err := e.Bucket.Get(r.Context(), key, off, n, unquoted(r.Header.Get("If-None-Match")))
	if err != nil {
		refuse(w, err)
		return
	}
	defer body.Close()
	w.Header().Set("ETag", quoted(info.Version))
	w.Header().Set("Last-Modified", info.Modified.UTC().Format(http.TimeFormat))
	if !info.Date.IsZero() {
		w.Header().Set("Date", info.Date.UTC().Format(http.TimeFormat))
	}
	length, status := info.Size, http.StatusOK
	if ranged != "" && n != 0 {
		end := info.Size
		if n > 0 {
			end = min(off+n, info.Size)
		}
		length, status = end-off, http.StatusPartialContent
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", off, end-1, info.Size))
	}
	w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	w.WriteHeader(status)
	io.Copy(w, body)
}

func (e *Engine) put(w http.ResponseWriter, r *http.Request, key string) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		fail(w, http.StatusBadRequest, "IncompleteBody")
		return
	}
	body := bucket.Bytes(data)
	if sum,
		err := base64.StdEncoding.DecodeString(r.Header.Get("x-amz-checksum-crc32c")); err == nil && len(sum) == 4 {
		body.CRC32C = binary.BigEndian.Uint32(sum)
	}
	v, err := e.Bucket.Put(r.Context(), key, body, bucket.Cond{
		Absent: r.Header.Get("If-None-Match") == "*", Version: unquoted(r.Header.Get("If-Match"))})
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("ETag", quoted(v))
}

func (e *Engine) delete(w http.ResponseWriter, r *http.Request) {
	var batch struct {
		Object []struct{ Key string }
	}
	if err := xml.NewDecoder(r.Body).Decode(&batch); err != nil || len(batch.Object) > pageSize {
		fail(w, http.StatusBadRequest, "MalformedXML")
		return
	}
	var keys []string
	for _, o := range batch.Object {
		keys = append(keys, o.Key)
	}
	if err := e.Bucket.Delete(r.Context(), keys); err != nil {
		refuse(w, err)
		return
	}
	io.WriteString(w, "<DeleteResult></DeleteResult>")
}

type listed struct {
	Key, ETag, LastModified string
	Size                    int64
}

type listing struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	IsTruncated           bool
	NextContinuationToken string `xml:",omitempty"`
	Contents              []listed
}

func (e *Engine) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	var page listing
	for info, err := range e.Bucket.List(r.Context(), q.Get("prefix"),
		max(q.Get("start-after"), q.Get("continuation-token"))) {
		if err != nil {
			refuse(w, err)
			return
		}
		if len(page.Contents) == pageSize {
			page.IsTruncated = true
			page.NextContinuationToken = page.Contents[pageSize-1].Key
			break
		}
		page.Contents = append(page.Contents, listed{Key: info.Key, Size: info.Size,
			ETag:         quoted(info.Version),
			LastModified: info.Modified.UTC().Format("2006-01-02T15:04:05.000Z")})
	}
	w.Header().Set("Content-Type", "application/xml")
	xml.NewEncoder(w).Encode(page)
}
