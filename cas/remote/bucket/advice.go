package bucket

import "errors"

// advised is what a person may do about what an engine answers, by its code; codes are Amazon's, and of
// engines that have others for the same.
var advised = map[string]string{
	"SignatureDoesNotMatch": "the secret key is not that of the access key: look at AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials",
	"InvalidAccessKeyId":    unknownKey,
	"XAdminUserNotFound":    unknownKey,
	"ExpiredToken":          expired,
	"ExpiredTokenException": expired,
	"TokenRefreshRequired":  expired,
	"InvalidToken":          expired,

	"AuthorizationHeaderMalformed":       otherRegion,
	"PermanentRedirect":                  otherRegion,
	"IllegalLocationConstraintException": otherRegion,
}

const (
	unknownKey  = "the object store does not know the access key: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE or --profile for one in ~/.aws"
	expired     = "the credentials have expired: get new ones, as by `aws sso login`; a mount finds what is in ~/.aws by itself"
	otherRegion = "the bucket is in another region: name it with --region, or AWS_REGION"
)

// Advice is what a person may do about a request that failed, "" if the error says all there is.
func Advice(err error) string {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{}
	}
	if s := advised[e.Code]; s != "" {
		return s
	}
	switch {
	case errors.Is(err, ErrNoBucket):
		return "make the bucket first, or look at its name and --endpoint: ckptfs makes no buckets"
	case errors.Is(err, ErrDenied) && e.Status == 0 && e.Err != nil: // who signs requests found nothing
		return "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE or --profile for some in ~/.aws"
	case errors.Is(err, ErrDenied) && e.Code != "": // a mirror over plain HTTP has no codes, and no policy
		return "the credentials do not allow it: `ckptfs remote policy` prints what they have to"
	case errors.Is(err, ErrFull):
		return "make room: `ckptfs prune --remote`, or a greater quota"
	case errors.Is(err, ErrUnreachable):
		return "look at the network, at --endpoint, and whether the object store runs"
	}
	return ""
}
