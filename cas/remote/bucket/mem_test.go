package bucket_test

import (
	"testing"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/bucket/suite"
)

func TestMem(t *testing.T) {
	suite.Run(t, func(*testing.T) bucket.Bucket { return &bucket.Mem{} })
}
