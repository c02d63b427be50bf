package s3_test

import (
	"testing"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/bucket/suite"
	"ckptfs/cas/remote/s3"
	"ckptfs/cas/remote/s3/s3test"
)

func open(t *testing.T, c s3.Config) *s3.Bucket {
	t.Helper()
	b, err := s3.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTwinBehindHTTP(t *testing.T) {
	s3test.Credentials(t)
	suite.Run(t, func(t *testing.T) bucket.Bucket {
		c := s3test.Start(t, &bucket.Mem{})
		c.Prefix = "some/prefix/"
		return open(t, c)
	})
}
