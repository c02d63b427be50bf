// Package suite has the tests that every Bucket passes: the twin in memory, and engines.
package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"ckptfs/cas/remote/bucket"
)

// Run runs the suite. open returns an empty bucket for each test.
func Run(t *testing.T, open func(*testing.T) bucket.Bucket) {
	for _, c := range []struct {
		name string
		test func(*testing.T, bucket.Bucket)
	}{
		{"Get", testGet},
		{"Range", testRange},
		{"Create", testCreate},
		{"Swap", testSwap},
		{"SwapMissing", testSwapMissing},
		{"Delete", testDelete},
		{"List", testList},
		{"Keys", testKeys},
		{"Damaged", testDamaged},
		{"Creators", testCreators},
		{"Counter", testCounter},
		{"Cancelled", testCancelled},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

// Put puts bytes, and ends the test if that fails.
func Put(t *testing.T, b bucket.Bucket, key string, data []byte, cond bucket.Cond) bucket.Version {
	t.Helper()
	v, err := b.Put(t.Context(), key, bucket.Bytes(data), cond)
	if err != nil {
		t.Fatal(err)
	}
	if v == "" {
		t.Fatalf("put %s: no version", key)
	}
	return v
}

// holds checks what an object is; nil: that there is none.
func holds(t *testing.T, b bucket.Bucket, key string, want []byte) bucket.Info {
	t.Helper()
	got, info, err := bucket.Read(t.Context(), b, key, 1<<30, "")
	if want == nil {
		if !errors.Is(err, bucket.ErrNotFound) {
			t.Fatalf("%s: %d bytes, %v; want no object", key, len(got), err)
		}
		return info
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s holds %d bytes %.20q, want %d bytes %.20q", key, len(got), got, len(want), want)
	}
	return info
}

func refused(t *testing.T, err error, kinds ...error) {
	t.Helper()
	if !slices.ContainsFunc(kinds, func(k error) bool { return errors.Is(err, k) }) {
		t.Fatalf("error is %v, want one of %v", err, kinds)
	}
	if e := (*bucket.Error)(nil); !errors.As(err, &e) {
		t.Fatalf("error is %T, want *bucket.Error", err)
	}
}

func testGet(t *testing.T, b bucket.Bucket) {
	holds(t, b, "a", nil)
	v := Put(t, b, "a", []byte("one"), bucket.Cond{})
	info := holds(t, b, "a", []byte("one"))
	if info.Version != v || info.Size != 3 || info.Date.IsZero() || info.Modified.IsZero() {
		t.Fatalf("info is %+v, want version %s, 3 bytes, a date and a time", info, v)
	}
	_, _, err := b.Get(t.Context(), "a", 0, bucket.All, v)
	refused(t, err, bucket.ErrUnchanged)
	w := Put(t, b, "a", []byte("two"), bucket.Cond{})
	if w == v {
		t.Fatalf("another content has the same version %s", w)
	}
	if _, info, err := bucket.Read(t.Context(), b, "a", 3, v); err != nil || info.Version != w {
		t.Fatalf("%+v, %v; want version %s", info, err, w)
	}
	_, _, err = bucket.Read(t.Context(), b, "a", 2, "")
	refused(t, err, bucket.ErrTooLarge)
	Put(t, b, "empty", []byte{}, bucket.Cond{})
	holds(t, b, "empty", []byte{})
}

func testRange(t *testing.T, b bucket.Bucket) {
	data := make([]byte, 300_000)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	Put(t, b, "a", data, bucket.Cond{Absent: true})
	size := int64(len(data))
	for _, r := range []struct{ off, n, want int64 }{
		{0, 1, 1}, {0, size, size}, {17, 1000, 1000}, {size - 1, 1, 1}, {size - 5, bucket.All, 5},
		{size - 5, 100, 5}, {0, size + 1, size}, {0, 0, 0}, {17, 0, 0},
	} {
		body, info, err := b.Get(t.Context(), "a", r.off, r.n, "")
		if err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		got, err := io.ReadAll(body)
		body.Close()
		if err != nil || !bytes.Equal(got, data[r.off:r.off+r.want]) || info.Size != size {
			t.Fatalf("%+v: %d bytes of %d, %v", r, len(got), info.Size, err)
		}
	}
	for _, n := range []int64{1, bucket.All} {
		_, _, err := b.Get(t.Context(), "a", size, n, "")
		refused(t, err, bucket.ErrRange)
	}
	Put(t, b, "empty", nil, bucket.Cond{})
	_, _, err := b.Get(t.Context(), "empty", 0, 1, "")
	refused(t, err, bucket.ErrRange)
}

func testCreate(t *testing.T, b bucket.Bucket) {
	v := Put(t, b, "a", []byte("first"), bucket.Cond{Absent: true})
	_, err := b.Put(t.Context(), "a", bucket.Bytes([]byte("second")), bucket.Cond{Absent: true})
	refused(t, err, bucket.ErrPrecondition)
	if info := holds(t, b, "a", []byte("first")); info.Version != v {
		t.Fatalf("a refused put changed the version from %s to %s", v, info.Version)
	}
}

func testSwap(t *testing.T, b bucket.Bucket) {
	v1 := Put(t, b, "a", []byte("one"), bucket.Cond{})
	v2 := Put(t, b, "a", []byte("two"), bucket.Cond{Version: v1})
	if v1 == v2 {
		t.Fatalf("two contents have the version %s", v1)
	}
	_, err := b.Put(t.Context(), "a", bucket.Bytes([]byte("three")), bucket.Cond{Version: v1})
	refused(t, err, bucket.ErrPrecondition)
	if info := holds(t, b, "a", []byte("two")); info.Version != v2 {
		t.Fatalf("the version is %s, want %s", info.Version, v2)
	}
}

func testSwapMissing(t *testing.T, b bucket.Bucket) {
	v := Put(t, b, "a", []byte("one"), bucket.Cond{})
	if err := b.Delete(t.Context(), []string{"a"}); err != nil {
		t.Fatal(err)
	}
	_, err := b.Put(t.Context(), "a", bucket.Bytes([]byte("two")), bucket.Cond{Version: v})
	refused(t, err, bucket.ErrPrecondition, bucket.ErrNotFound)
	holds(t, b, "a", nil)
}

func testDelete(t *testing.T, b bucket.Bucket) {
	var keys []string
	for i := range 1100 { // more than a request of S3 takes
		keys = append(keys, fmt.Sprintf("d/%04d", i))
	}
	for _, k := range keys[:20] {
		Put(t, b, k, []byte(k), bucket.Cond{})
	}
	Put(t, b, "kept", []byte("kept"), bucket.Cond{})
	err := b.Delete(t.Context(), keys)
	for range 3 { // an answer may get lost
		if errors.Is(err, bucket.ErrDoubt) {
			err = b.Delete(t.Context(), keys)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	holds(t, b, keys[0], nil)
	holds(t, b, "kept", []byte("kept"))
	if got := list(t, b, "", ""); !slices.Equal(got, []string{"kept"}) {
		t.Fatalf("listed are %q", got)
	}
	if err := b.Delete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T, b bucket.Bucket, prefix, after string) (keys []string) {
	t.Helper()
	for info, err := range b.List(t.Context(), prefix, after) {
		if err != nil {
			t.Fatal(err)
		}
		if info.Size != int64(len(info.Key)) || info.Version == "" || info.Modified.IsZero() {
			t.Fatalf("listed as %+v", info)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

func testList(t *testing.T, b bucket.Bucket) {
	if got := list(t, b, "", ""); len(got) != 0 {
		t.Fatalf("an empty bucket has %q", got)
	}
	// Some engines keep objects as files: none of these keys is a folder of another.
	keys := []string{"a", "a-b", "a.b/c", "a0", "ab", "b/x", "b/y", "ba"}
	for i := range 1003 { // more than a page of S3 has
		keys = append(keys, fmt.Sprintf("p/%04d", i))
	}
	for _, k := range keys {
		Put(t, b, k, []byte(k), bucket.Cond{})
	}
	slices.Sort(keys)
	for _, c := range []struct{ prefix, after string }{
		{"", ""}, {"a", ""}, {"a.", ""}, {"b/", "b/x"}, {"p/", "p/0500"}, {"", "ab"}, {"nothing", ""},
	} {
		var want []string
		for _, k := range keys {
			if len(k) >= len(c.prefix) && k[:len(c.prefix)] == c.prefix && k > c.after {
				want = append(want, k)
			}
		}
		if got := list(t, b, c.prefix, c.after); !slices.Equal(got, want) {
			t.Fatalf("prefix %q after %q: %d keys, want %d", c.prefix, c.after, len(got), len(want))
		}
	}
	for range b.List(t.Context(), "", "") {
		break
	}
}

// testKeys puts what keys of a remote consist of.
func testKeys(t *testing.T, b bucket.Bucket) {
	for _, k := range []string{"format", "heads/@archive", "heads/gpu-node-17.0123abcd",
		"d/ab/abcdef0123456789",
		"gc/e/00000001"} {
		Put(t, b, k, []byte(k), bucket.Cond{Absent: true})
		holds(t, b, k, []byte(k))
	}
}

// testDamaged puts a body whose checksum is wrong: the engine has to look.
func testDamaged(t *testing.T, b bucket.Bucket) {
	body := bucket.Bytes([]byte("as it was"))
	body.CRC32C ^= 1
	_, err := b.Put(t.Context(), "a", body, bucket.Cond{})
	refused(t, err, bucket.ErrDamaged)
	holds(t, b, "a", nil)
}

// testCreators lets several create one key at the same time: one does.
func testCreators(t *testing.T, b bucket.Bucket) {
	for round := range 8 {
		key := fmt.Sprintf("round-%d", round)
		var mu sync.Mutex
		var won [][]byte
		together(8, func(i int) {
			data := fmt.Appendf(nil, "creator %d", i)
			for {
				_, err := b.Put(context.WithoutCancel(t.Context()), key, bucket.Bytes(data),
					bucket.Cond{Absent: true})
				switch {
				case err == nil:
					mu.Lock()
					won = append(won, data)
					mu.Unlock()
				case errors.Is(err, bucket.ErrConflict):
					continue
				case !errors.Is(err, bucket.ErrPrecondition):
					t.Error(err)
				}
				return
			}
		})
		if len(won) != 1 {
			t.Fatalf("%d of 8 created %s", len(won), key)
		}
		holds(t, b, key, won[0])
	}
}

// testCounter lets several count one object up.
func testCounter(t *testing.T, b bucket.Bucket) {
	const workers, each = 4, 8
	Put(t, b, "n", []byte("0"), bucket.Cond{Absent: true})
	together(workers, func(int) {
		for done := 0; done < each; {
			data, info, err := bucket.Read(t.Context(), b, "n", 20, "")
			if err != nil {
				t.Error(err)
				return
			}
			var n int
			fmt.Sscan(string(data), &n)
			_, err = b.Put(t.Context(), "n", bucket.Bytes(fmt.Append(nil, n+1)),
				bucket.Cond{Version: info.Version})
			switch {
			case err == nil:
				done++
			case !errors.Is(err, bucket.ErrPrecondition) && !errors.Is(err, bucket.ErrConflict):
				t.Error(err)
				return
			}
		}
	})
	holds(t, b, "n", fmt.Append(nil, workers*each))
}

func together(n int, f func(int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

func testCancelled(t *testing.T, b bucket.Bucket) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Put(ctx, "a", bucket.Bytes(nil), bucket.Cond{})
	refused(t, err, bucket.ErrUnreachable, bucket.ErrDoubt)
	_, _, err = b.Get(ctx, "a", 0, bucket.All, "")
	refused(t, err, bucket.ErrUnreachable)
	refused(t, b.Delete(ctx, []string{"a"}), bucket.ErrUnreachable, bucket.ErrDoubt)
	for _, err := range b.List(ctx, "", "") {
		refused(t, err, bucket.ErrUnreachable)
	}
}
