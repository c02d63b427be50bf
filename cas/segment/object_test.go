package segment

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"ckptfs/cas"
)

// A segment that is made in memory is that which a Writer makes, and one that says not when it was sealed.
func TestAppend(t *testing.T) {
	for _, n := range []int{0, 1, 5000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			m := newMem(t)
			w := create(t, m)
			got := AppendFileHeader(nil, testID)
			for i := range n {
				payload := bytes.Repeat([]byte{byte(i)}, i%19)
				r := &Record{Kind: cas.Chunk, Raw: uint32(len(payload)), Hash: cas.Sum(payload),
					XXH3: cas.SumXXH3(payload)}
				s, err := w.Reserve(len(payload))
				if err != nil {
					t.Fatal(err)
				}
				err = w.Write(s, r, append(make([]byte, RecordHeaderSize), payload...))
				if _, err := w.Finish(s, r, err); err != nil {
					t.Fatal(err)
				}
				got = AppendRecord(got, testID, r, payload)
			}
			got = AppendFooter(got, testID, w.Records(), int64(len(got)))
			if _, err := w.Seal(time.Time{}); err != nil {
				t.Fatal(err)
			}
			want := fileOf(t, m)
			if !bytes.Equal(got, want) || int64(len(got)) != w.Settled() || FooterSize(n) != int64(n)*56+160 {
				t.Errorf("%d bytes, want %d", len(got), len(want))
			}
		})
	}
}
