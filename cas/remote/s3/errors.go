package s3

import (
	"context"
	"errors"
	"net/http"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/transport"
)

// failed is the error of a request that Amazon's library returned.
func (q *request) failed(err error) error {
	e := q.Unanswered(err)
	if !q.Asked() { // who answered, if anybody did, was asked for credentials
		return e
	}
	if api := smithy.APIError(nil); errors.As(err, &api) {
		e.Code, e.Message = api.ErrorCode(), api.ErrorMessage()
	}
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) && response.Response != nil && response.HTTPStatusCode() != 0 {
		e.Status = response.HTTPStatusCode()
		e.Kind = kindOf(q.Op, e.Status, e.Code)
	}
	if expired(e.Code) && q.b.renew(q.ctx, q.credentials) {
		e.Kind = bucket.ErrBusy // the next request has others
	}
	return e
}

// kindOf tells what an answer means.
func kindOf(op string, status int, code string) error {
	switch code {
	case "NoSuchBucket":
		return bucket.ErrNoBucket
	case "BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch",
		"IncompleteBody":
		return bucket.ErrDamaged
	case "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests",
		"RequestLimitExceeded", "RequestTimeTooSkewed":
		// The library reads the engine's clock off the answer: the next signature has its time.
		return bucket.ErrBusy
	case "QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "XMinioAdminBucketQuotaExceeded":
		return bucket.ErrFull
	case "AccessDenied",
		"XAdminUserNotFound": // versitygw's 404 for an access key that it does not know
		return bucket.ErrDenied
	case "InvalidObjectState":
		return bucket.ErrArchived
	case "ObjectParentIsFile": // 409, and no conflict of requests
		return bucket.ErrRefused
	}
	if status < 300 && code == "" && (op == "put" || op == "delete") {
		return bucket.ErrDoubt // it was done, and the rest of the answer did not come
	}
	return transport.KindOf(op, status)
}

// unlessAbsent is the error of a get, or that there is no such object. Amazon refuses to tell that to who may
// list only what begins with some names, as policies have it: a listing of the object's name tells.
func (b *Bucket) unlessAbsent(ctx context.Context, key string, err error) error {
	var e *bucket.Error
	if !errors.As(err, &e) || e.Kind != bucket.ErrDenied || e.Status != http.StatusForbidden ||
		expired(e.Code) {
		return err
	}
	for info, lerr := range b.List(ctx, key, "") {
		if lerr != nil || info.Key == key {
			return err
		}
		break
	}
	return &bucket.Error{Op: e.Op, Key: key, Kind: bucket.ErrNotFound, Status: e.Status, Code: e.Code,
		Message: e.Message}
}
