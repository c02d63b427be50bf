package s3

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"ckptfs/cas/remote/bucket"
)

// Kept asks whether the bucket keeps versions, and lists them if it does. An engine that has none is as one
// that keeps none.
func (b *Bucket) Kept(ctx context.Context) (*bucket.Kept, error) {
	state, err := b.versioning(ctx)
	k := &bucket.Kept{Versioned: state != ""}
	if err != nil || !k.Versioned {
		return k, err
	}
	in := &s3.ListObjectVersionsInput{Bucket: &b.c.Bucket, Prefix: b.key("")}
	for {
		out, err := b.versions(ctx, in)
		if err != nil {
			return nil, err
		}
		for _, v := range out.Versions {
			if !aws.ToBool(v.IsLatest) {
				k.Objects++
				k.Bytes += aws.ToInt64(v.Size)
			}
		}
		next, id := aws.ToString(out.NextKeyMarker), aws.ToString(out.NextVersionIdMarker)
		if !aws.ToBool(out.IsTruncated) || next == aws.ToString(in.KeyMarker) &&
			id == aws.ToString(in.VersionIdMarker) { // an engine could keep a reader for ever
			return k, nil
		}
		in.KeyMarker, in.VersionIdMarker = out.NextKeyMarker, out.NextVersionIdMarker
	}
}

func (b *Bucket) versioning(ctx context.Context) (types.BucketVersioningStatus, error) {
	ctx, q := b.begin(ctx, "versioning", "")
	defer q.End()
	out, err := b.client.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &b.c.Bucket})
	if err == nil {
		return out.Status, nil
	}
	err = q.failed(err)
	var e *bucket.Error
	if errors.As(err, &e) && (e.Code == "NotImplemented" || errors.Is(err, bucket.ErrNotFound)) {
		return "", nil
	}
	return "", err
}

func (b *Bucket) versions(ctx context.Context, in *s3.ListObjectVersionsInput) (*s3.ListObjectVersionsOutput,
	error) {
	ctx, q := b.begin(ctx, "list", "")
	defer q.End()
	out, err := b.client.ListObjectVersions(ctx, in)
	if err != nil {
		return nil, q.failed(err)
	}
	return out, nil
}
