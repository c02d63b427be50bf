package remote

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

// maxText bounds the bytes of the format object.
const maxText = 16 << 10

// Format is what the format object says.
type Format struct {
	ID      record.ID
	Created time.Time // to the second
}

// Encode is the object's text.
func (f Format) Encode() []byte {
	p := appendFields(nil, []field{{"ckptfs-remote", "1"}, {"id", f.ID.String()},
		{"created", f.Created.UTC().Format(time.RFC3339)}})
	return appendFields(p, []field{{"sum", sumOf(p)}})
}

func sumOf(p []byte) string {
	sum := cas.Sum(p)
	return hex.EncodeToString(sum[:16])
}

// ParseFormat reads what Encode wrote. The error wraps cas.ErrCorrupt, or cas.ErrNewer.
func ParseFormat(p []byte) (f Format, err error) {
	fields, err := parseFields("the remote's format", p, "ckptfs-remote", "id", "created", "sum")
	if err != nil {
		return f, err
	}
	if err := version("the remote's format", fields, "ckptfs-remote"); err != nil {
		return f, err
	}
	f.Created, err = time.Parse(time.RFC3339, fields["created"])
	before, _, _ := strings.Cut(string(p), "sum ")
	if !parseID(&f.ID, fields["id"]) || err != nil || fields["sum"] != sumOf([]byte(before)) {
		return f, fmt.Errorf("the remote's format is damaged: %w", cas.ErrCorrupt)
	}
	return f, nil
}

func parseID(id *record.ID, s string) bool {
	p, err := hex.DecodeString(s)
	return err == nil && len(p) == len(id) && copy(id[:], p) == len(id) && s == id.String()
}

// ErrNone: there is no remote at an address.
var ErrNone = errors.New("there is no remote")

// Look reads the format object; ErrNone if there is none.
func Look(ctx context.Context, b bucket.Bucket) (Format, error) {
	p, _, err := bucket.Read(ctx, b, record.FormatKey, maxText, "")
	if errors.Is(err, bucket.ErrNotFound) {
		return Format{}, ErrNone
	}
	if err != nil {
		return Format{}, err
	}
	return ParseFormat(p)
}

// Make makes a remote, unless there is one. It may be called again when it failed.
func Make(ctx context.Context, b bucket.Bucket, now time.Time) (f Format, made bool, err error) {
	if f, err = Look(ctx, b); !errors.Is(err, ErrNone) {
		return f, false, err
	}
	f = Format{Created: now.UTC().Truncate(time.Second)}
	rand.Read(f.ID[:])
	_, err = b.Put(ctx, record.FormatKey, bucket.Bytes(f.Encode()), bucket.Cond{Absent: true})
	switch {
	case err == nil:
		return f, true, nil
	case errors.Is(err, bucket.ErrPrecondition), errors.Is(err, bucket.ErrDoubt),
		errors.Is(err, bucket.ErrConflict): // another one's, or ours
		there, look := Look(ctx, b)
		if look != nil {
			return Format{}, false, errors.Join(err, look)
		}
		return there, there.ID == f.ID, nil
	}
	return Format{}, false, err
}
