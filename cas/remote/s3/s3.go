// Package s3 is a bucket.Bucket on an engine that speaks S3. It alone knows Amazon's library.
//
// Requests are made once: what is tried again, and when, is for the caller to decide, who knows whether a
// Put whose answer was lost may be made twice. Bodies are not signed; a CRC-32C that was computed before is
// sent with each, in a header (trailers are refused by several engines).
//
// Credentials are looked for where Amazon's tools look: the environment, profiles, single sign-on, web
// identities, containers, the machine's role. They are looked for again when the engine says that they have
// expired: another program may have put new ones into a file.
package s3

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/transport"
)

const (
	// deleteBatch is what one request of S3 deletes at most.
	deleteBatch = 1000
	// emptyPages is how many pages of a listing may follow each other with nothing on them.
	emptyPages = 100
)

// Config says where a bucket is.
type Config struct {
	Bucket string
	Prefix string // "" or with a slash at its end
	// Endpoint is the engine's URL; Amazon's own if "".
	Endpoint string
	// Region is as the environment and the profile say if ""; any does for most other engines.
	Region    string
	PathStyle bool // the bucket's name is in the path, not in the host
	Profile   string
	// Transport makes the requests; nil: over the network.
	Transport http.RoundTripper
}

// Bucket is a prefix of a bucket of an engine.
type Bucket struct {
	client *s3.Client
	c      Config

	credentials atomic.Pointer[aws.CredentialsProvider] // as they were found last
	renewing    sync.Mutex
}

// Open reads the configuration; it asks the engine nothing.
func Open(ctx context.Context, c Config) (*Bucket, error) {
	loaded, err := load(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("credentials and region: %w", err)
	}
	switch {
	case loaded.Region != "":
	case c.Endpoint != "":
		loaded.Region = "us-east-1" // what engines that have no regions expect in a signature
	default:
		return nil, fmt.Errorf("bucket %s: no region: name it with --region or AWS_REGION", c.Bucket)
	}
	if c.Transport == nil {
		c.Transport = transport.New()
	}
	b, found := &Bucket{c: c}, loaded.Credentials
	b.credentials.Store(&found)
	loaded.Credentials = aws.CredentialsProviderFunc(b.retrieve)
	b.client = s3.NewFromConfig(loaded, func(o *s3.Options) {
		if c.Endpoint != "" {
			o.BaseEndpoint = &c.Endpoint
		}
		o.UsePathStyle = c.PathStyle
		o.HTTPClient = &http.Client{Transport: transport.Watched{RoundTripper: c.Transport}}
		o.Retryer = aws.NopRetryer{}
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.ContinueHeaderThresholdBytes = -1
	})
	return b, nil
}

func (b *Bucket) key(key string) *string { return aws.String(b.c.Prefix + key) }

// Get asks for a range only if not all is wanted.
func (b *Bucket) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	if n == 0 {
		info, err := b.head(ctx, key, unless)
		return http.NoBody, info, err
	}
	in := &s3.GetObjectInput{Bucket: &b.c.Bucket, Key: b.key(key), IfNoneMatch: etag(unless)}
	if r := transport.Range(off, n); r != "" {
		in.Range = &r
	}
	asked := ctx
	ctx, q := b.begin(ctx, "get", key)
	out, err := b.client.GetObject(ctx, in)
	if err != nil {
		err = q.failed(err)
		q.End()
		return nil, bucket.Info{}, b.unlessAbsent(asked, key, err)
	}
	info := bucket.Info{Key: key, Version: version(out.ETag), Modified: aws.ToTime(out.LastModified),
		Date: date(out.ResultMetadata)}
	announced := int64(-1)
	if out.ContentLength != nil {
		announced = *out.ContentLength
	}
	var size int64
	if info.Size, size, err = transport.Part(announced, aws.ToString(out.ContentRange), off, n); err != nil {
		out.Body.Close()
		q.End()
		return nil, bucket.Info{}, q.Refused(err)
	}
	return q.Body(out.Body, size), info, nil
}

func (b *Bucket) head(ctx context.Context, key string, unless bucket.Version) (bucket.Info, error) {
	asked := ctx
	ctx, q := b.begin(ctx, "get", key)
	defer q.End()
	out, err := b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.c.Bucket, Key: b.key(key),
		IfNoneMatch: etag(unless)})
	if err != nil {
		return bucket.Info{}, b.unlessAbsent(asked, key, q.failed(err))
	}
	return bucket.Info{Key: key, Size: aws.ToInt64(out.ContentLength), Version: version(out.ETag),
		Modified: aws.ToTime(out.LastModified), Date: date(out.ResultMetadata)}, nil
}

// Put sends the body once.
func (b *Bucket) Put(ctx context.Context, key string, what bucket.Body,
	cond bucket.Cond) (bucket.Version, error) {
	ctx, q := b.begin(ctx, "put", key)
	defer q.End()
	r, err := what.Open()
	if err != nil {
		return "", q.Refused(err)
	}
	defer r.Close()
	in := &s3.PutObjectInput{Bucket: &b.c.Bucket, Key: b.key(key), Body: r, ContentLength: &what.Size,
		ChecksumCRC32C: crcHeader(what.CRC32C), IfMatch: etag(cond.Version)}
	if cond.Absent {
		in.IfNoneMatch = aws.String("*")
	}
	in.CacheControl = aws.String("no-cache")
	if what.Immutable {
		in.CacheControl = aws.String("public, max-age=31536000, immutable")
	}
	out, err := b.client.PutObject(ctx, in, unsigned)
	if err != nil {
		return "", q.failed(err)
	}
	return version(out.ETag), nil
}

// unsigned leaves the body out of the signature: it is read once, and not to be hashed before.
func unsigned(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
}

func crcHeader(sum uint32) *string {
	return aws.String(base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum)))
}

// Delete deletes 1,000 objects a request.
func (b *Bucket) Delete(ctx context.Context, keys []string) error {
	for len(keys) > 0 {
		n := min(len(keys), deleteBatch)
		if err := b.delete(ctx, keys[:n]); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

func (b *Bucket) delete(ctx context.Context, keys []string) error {
	ctx, q := b.begin(ctx, "delete", "")
	defer q.End()
	batch := &types.Delete{Quiet: aws.Bool(true)}
	for _, k := range keys {
		batch.Objects = append(batch.Objects, types.ObjectIdentifier{Key: b.key(k)})
	}
	out, err := b.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &b.c.Bucket, Delete: batch})
	if err != nil {
		return q.failed(err)
	}
	for _, e := range out.Errors {
		code := aws.ToString(e.Code)
		return &bucket.Error{Op: "delete", Key: strings.TrimPrefix(aws.ToString(e.Key), b.c.Prefix),
			Kind: kindOf("delete", 0, code), Code: code, Message: aws.ToString(e.Message)}
	}
	return nil
}

// List asks for a page at a time.
func (b *Bucket) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Info, error] {
	return func(yield func(bucket.Info, error) bool) {
		in := &s3.ListObjectsV2Input{Bucket: &b.c.Bucket, Prefix: b.key(prefix)}
		if after != "" {
			in.StartAfter = b.key(after)
		}
		last := after
		for empty := 0; ; {
			page, err := b.page(ctx, in, prefix, last)
			for _, info := range page.infos {
				if !yield(info, nil) {
					return
				}
				last = info.Key
			}
			if err != nil {
				yield(bucket.Info{}, err)
				return
			}
			if page.next == "" {
				return
			}
			if len(page.infos) > 0 {
				empty = 0
			} else if empty++; empty == emptyPages {
				yield(bucket.Info{}, &bucket.Error{Op: "list", Key: prefix, Kind: bucket.ErrRefused,
					Message: "one page after the other is empty"})
				return
			}
			in.ContinuationToken = &page.next
		}
	}
}

type page struct {
	infos []bucket.Info
	next  string // token of the next page; "": there is none
}

// page gets a page of a listing. That its keys ascend is checked: an engine could keep a reader for ever.
func (b *Bucket) page(ctx context.Context, in *s3.ListObjectsV2Input, prefix, last string) (p page,
	err error) {
	ctx, q := b.begin(ctx, "list", prefix)
	defer q.End()
	out, err := b.client.ListObjectsV2(ctx, in)
	if err != nil {
		return p, q.failed(err)
	}
	for _, o := range out.Contents {
		key, ok := strings.CutPrefix(aws.ToString(o.Key), b.c.Prefix)
		if !ok || !strings.HasPrefix(key, prefix) || key <= last {
			return p, q.Refused(fmt.Errorf("%q is listed below %q behind %q", key, prefix, last))
		}
		p.infos = append(p.infos, bucket.Info{Key: key, Size: aws.ToInt64(o.Size), Version: version(o.ETag),
			Modified: aws.ToTime(o.LastModified)})
		last = key
	}
	if aws.ToBool(out.IsTruncated) {
		if p.next = aws.ToString(out.NextContinuationToken); p.next == "" {
			return p, q.Refused(errors.New("a page of a listing is neither the last nor followed by one"))
		}
	}
	return p, nil
}

func version(etag *string) bucket.Version { return transport.Version(aws.ToString(etag)) }

func etag(v bucket.Version) *string {
	if v == "" {
		return nil
	}
	return aws.String(transport.ETag(v))
}

func date(m middleware.Metadata) time.Time {
	if r, ok := awsmiddleware.GetRawResponse(m).(*smithyhttp.Response); ok {
		if t, err := http.ParseTime(r.Header.Get("Date")); err == nil {
			return t
		}
	}
	return time.Time{}
}
