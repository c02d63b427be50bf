// Package web is a bucket that is read over plain HTTP: a bucket that anybody may read, or a CDN or nginx in
// front of one. Nothing can be put or deleted, and nothing is listed: of heads it shows the one of what was
// exported (record.ExportsWriter).
//
//	GET URL/key     with Range, and If-None-Match
//	HEAD URL/key
//
// What a server on the way keeps of an object that changes may be old. So requests for these say no-cache,
// and so do all that Past makes.
package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/transport"
)

// Bucket is a prefix of what a server has.
type Bucket struct {
	url    string // with a slash at its end
	client *http.Client
	past   bool // every request goes past what is kept on the way
}

// Open returns the bucket below a URL, over a transport of its own if rt is nil. It asks nobody.
func Open(address string, rt http.RoundTripper) (*Bucket, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, errors.New("the mirror is no URL: write https://HOST/PATH") // the error may hold a password
	case u.User != nil:
		return nil, errors.New("a mirror's URL holds no user and no password")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.RawQuery != "", u.Fragment != "":
		return nil, fmt.Errorf("mirror %q: write https://HOST/PATH", address)
	}
	if rt == nil {
		rt = transport.New()
	}
	return &Bucket{url: strings.TrimSuffix(u.String(), "/") + "/",
		client: &http.Client{Transport: transport.Watched{RoundTripper: rt}}}, nil
}

// URL is that of what the bucket is a prefix of.
func (b *Bucket) URL() string { return strings.TrimSuffix(b.url, "/") }

// Past is the bucket past what servers on the way keep.
func (b *Bucket) Past() bucket.Bucket { return &Bucket{url: b.url, client: b.client, past: true} }

// Get asks for a range only if not all is wanted.
func (b *Bucket) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	ctx, watch := transport.Begin(ctx, "get", key)
	out, err := b.ask(ctx, key, off, n, unless)
	if err != nil {
		err = watch.Unanswered(err)
		watch.End()
		return nil, bucket.Info{}, err
	}
	body, info, err := answer(watch, key, out, off, n)
	if err != nil {
		out.Body.Close()
		watch.End()
	}
	return body, info, err
}

func (b *Bucket) ask(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	*http.Response, error) {
	method := http.MethodGet
	if n == 0 {
		method = http.MethodHead
	}
	r, err := http.NewRequestWithContext(ctx, method, b.url+key, nil)
	if err != nil {
		return nil, err
	}
	set := func(name, value string) {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	set("Accept-Encoding", "identity")
	set("If-None-Match", transport.ETag(unless))
	if n != 0 {
		set("Range", transport.Range(off, n))
	}
	if _, _, immutable := record.ParseObject(key); b.past || !immutable {
		set("Cache-Control", "no-cache")
	}
	return b.client.Do(r)
}

// answer is what a server said.
func answer(watch *transport.Watch, key string, out *http.Response, off, n int64) (
	io.ReadCloser, bucket.Info, error) {
	info := transport.Info(key, out.Header)
	if info.Version == "" { // another one with each answer: who compares reads it
		info.Version = bucket.Version(out.Header.Get("Last-Modified") + out.Header.Get("Date"))
	}
	switch out.StatusCode {
	case http.StatusOK, http.StatusPartialContent:
	default:
		return nil, info, &bucket.Error{Op: "get", Key: key, Kind: transport.KindOf("get", out.StatusCode),
			Status: out.StatusCode, Message: out.Status}
	}
	if e := out.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, info, watch.Refused(fmt.Errorf("the answer is encoded as %s, and that was not asked for", e))
	}
	if n == 0 {
		info.Size = max(out.ContentLength, 0)
		watch.End()
		return http.NoBody, info, out.Body.Close()
	}
	size, part, err := transport.Part(out.ContentLength, out.Header.Get("Content-Range"), off, n)
	if err != nil {
		return nil, info, watch.Refused(err)
	}
	info.Size = size
	return watch.Body(out.Body, part), info, nil
}

// CheckRanges returns an ErrUnfit if the server gives no part of an object. Of one that does not answer, or
// does not have what every remote has, nothing is known.
func (b *Bucket) CheckRanges(ctx context.Context) error {
	r, _, err := b.Past().Get(ctx, record.FormatKey, 1, 8, "")
	if err == nil {
		return r.Close()
	}
	var e *bucket.Error
	if errors.As(err, &e) && e.Kind == bucket.ErrRefused && e.Status == 0 { // there was an answer
		return fmt.Errorf("%s: %w: its server has to answer requests with Range: %w", b.URL(),
			bucket.ErrUnfit, e.Err)
	}
	return nil
}

// readOnly is the error of what is no reading.
func readOnly(op, key string) error {
	return &bucket.Error{Op: op, Key: key, Kind: bucket.ErrDenied, Message: "over plain HTTP nothing is written"}
}

// Put fails.
func (b *Bucket) Put(_ context.Context, key string, _ bucket.Body, _ bucket.Cond) (bucket.Version, error) {
	return "", readOnly("put", key)
}

// Delete fails.
func (b *Bucket) Delete(context.Context, []string) error { return readOnly("delete", "") }

// List lists heads: that of what was exported, if there is one.
func (b *Bucket) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Info, error] {
	return func(yield func(bucket.Info, error) bool) {
		key := record.HeadKey(record.ExportsWriter)
		if prefix != record.Heads {
			yield(bucket.Info{}, &bucket.Error{Op: "list", Key: prefix, Kind: bucket.ErrDenied,
				Message: "over plain HTTP nothing is listed"})
			return
		}
		if after >= key {
			return
		}
		_, info, err := b.Get(ctx, key, 0, 0, "")
		if !errors.Is(err, bucket.ErrNotFound) {
			yield(info, err)
		}
	}
}
