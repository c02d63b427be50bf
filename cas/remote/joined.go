package remote

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

// JoinedFile is the name of the file in a store that says which remote it publishes to.
const JoinedFile = "remote"

// Joined is what a local store knows of its remote.
type Joined struct {
	Address
	ID     record.ID
	Writer record.Writer // "" if the remote is only read
}

// ReadOnly reports whether the store publishes nothing.
func (j Joined) ReadOnly() bool { return j.Writer == "" }

// MayWrite is an error, which wraps bucket.ErrDenied, of a store that only reads.
func (j Joined) MayWrite() error {
	if !j.ReadOnly() {
		return nil
	}
	return fmt.Errorf("this store only reads %s: %w", j.URL(), bucket.ErrDenied)
}

// Encode is the text of STORE/remote.
func (j Joined) Encode() []byte {
	style, writer := "", string(j.Writer)
	if j.PathStyle {
		style = "yes"
	}
	if j.ReadOnly() {
		writer = noWriter
	}
	return appendFields(nil, []field{{"ckptfs-joined", "1"}, {"url", j.URL()}, {"endpoint", j.Endpoint},
		{"region", j.Region}, {"path-style", style}, {"profile", j.Profile}, {"id", j.ID.String()},
		{"writer", writer}})
}

// noWriter is in the place of the writer where there is none.
const noWriter = "-"

// ParseJoined reads what Encode wrote. The error wraps cas.ErrCorrupt, or cas.ErrNewer.
func ParseJoined(p []byte) (j Joined, err error) {
	fields, err := parseFields(JoinedFile, p, "ckptfs-joined", "url", "endpoint", "region", "path-style",
		"profile", "id", "writer")
	if err != nil {
		return j, err
	}
	if err := version(JoinedFile, fields, "ckptfs-joined"); err != nil {
		return j, err
	}
	j.Address, err = ParseURL(fields["url"])
	if err != nil {
		return j, fmt.Errorf("%s: %w: %w", JoinedFile, err, cas.ErrCorrupt)
	}
	j.Endpoint, j.Region, j.Profile = fields["endpoint"], fields["region"], fields["profile"]
	j.PathStyle = fields["path-style"] == "yes"
	if fields["writer"] != noWriter {
		j.Writer = record.Writer(fields["writer"])
	}
	fits := fields["writer"] == noWriter || j.Writer.Check() == nil && !j.Address.ReadOnly()
	if !parseID(&j.ID, fields["id"]) || !fits || string(j.Encode()) != string(p) {
		return j, fmt.Errorf("%s: not as it was written: %w", JoinedFile, cas.ErrCorrupt)
	}
	return j, nil
}

// Register draws the id of a writer and makes its head, empty, before anything else is done under that id.
func Register(ctx context.Context, b bucket.Bucket, name string) (writer record.Writer, err error) {
	for range 8 {
		var digits [4]byte
		rand.Read(digits[:])
		writer = record.Writer(WriterName(name) + "." + hex.EncodeToString(digits[:]))
		_, err = b.Put(ctx, record.HeadKey(writer), bucket.Bytes(nil), bucket.Cond{Absent: true})
		// Doubt: the head may be there, and is nobody's. Another id costs nothing.
		if err == nil || !errors.Is(err, bucket.ErrPrecondition) && !errors.Is(err, bucket.ErrConflict) &&
			!errors.Is(err, bucket.ErrDoubt) {
			break
		}
	}
	if err != nil {
		return "", fmt.Errorf("register as a writer: %w", err)
	}
	return writer, nil
}

// WriterName is the nearest to a host's or a person's name that a writer's may be.
func WriterName(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, s)
	s = strings.Trim(s[:min(len(s), 40)], "-")
	if s == "" {
		return "writer"
	}
	return s
}

// Writers lists the stores that publish to a remote. What is there besides their heads is passed over.
func Writers(ctx context.Context, b bucket.Bucket) (all []record.Writer, err error) {
	for info, err := range b.List(ctx, record.Heads, "") {
		if err != nil {
			return nil, err
		}
		if w, ok := record.ParseHead(info.Key); ok && w.IsStore() {
			all = append(all, w)
		}
	}
	return all, nil
}
