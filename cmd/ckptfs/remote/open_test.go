package remote

import (
	"context"
	"errors"
	"testing"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/s3/s3test"
)

// forgetful is an engine that stopped to keep one condition.
type forgetful struct{ *bucket.Mem }

func (f forgetful) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	cond.Version = ""
	return f.Mem.Put(ctx, key, body, cond)
}

// What a mount or a command puts on a condition it puts on an engine that keeps conditions.
func TestOpenGuards(t *testing.T) {
	s3test.Credentials(t)
	for _, fit := range []bool{true, false} {
		mem := &bucket.Mem{}
		engine := bucket.Bucket(mem)
		if !fit {
			engine = forgetful{mem}
		}
		c := s3test.Start(t, engine)
		at := remote.Address{Bucket: c.Bucket, Endpoint: c.Endpoint, Region: c.Region, PathStyle: true}
		var m MountFlags
		b, err := m.Open()(remote.Joined{Address: at, ID: record.ID{1}, Writer: "a.00000001"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Put(t.Context(), "heads/a.00000001", bucket.Bytes(nil), bucket.Cond{Absent: true})
		if errors.Is(err, bucket.ErrUnfit) == fit || fit && err != nil {
			t.Errorf("fit %v: %v", fit, err)
		}
		if _, _, err := mem.Get(t.Context(), record.ProbeKey("a.00000001"), 0, 0, ""); err != nil {
			t.Error(err)
		}
	}
}
