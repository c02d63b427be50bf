package remote

import (
	"context"
	"errors"
	"testing"
	"time"

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
		j := remote.Joined{Address: at, ID: record.ID{1}, Writer: "a.00000001"}
		f := remote.Format{ID: j.ID, Created: time.Unix(1, 0)}
		_, err := mem.Put(t.Context(), record.FormatKey, bucket.Bytes(f.Encode()), bucket.Cond{})
		if err != nil {
			t.Fatal(err)
		}
		var m MountFlags
		mounted, err := m.Open()(j)
		if err != nil {
			t.Fatal(err)
		}
		s := shell{dir: t.TempDir()}
		if err := j.Write(s.dir); err != nil {
			t.Fatal(err)
		}
		joined, err := newCommands(s).joined(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		for key, b := range map[string]bucket.Bucket{"heads/mount": mounted, "heads/command": joined.bucket} {
			_, err := b.Put(t.Context(), key, bucket.Bytes(nil), bucket.Cond{Absent: true})
			if errors.Is(err, bucket.ErrUnfit) == fit || fit && err != nil {
				t.Errorf("%s, fit %v: %v", key, fit, err)
			}
		}
	}
}

// shell is that of one store.
type shell struct {
	Shell
	dir string
}

func (s shell) Store(string) (string, error) { return s.dir, nil }
