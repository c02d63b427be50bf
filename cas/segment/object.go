package segment

import "time"

// What follows makes a segment without a file: one that is an object of a remote.

// FooterSize is what the footer and the trailer of a segment of n records take, in bytes.
func FooterSize(n int) int64 { return int64(n)*entrySize + trailerSize }

// AppendFileHeader appends the file header of a segment.
func AppendFileHeader(dst []byte, id ID) []byte { return appendFileHeader(dst, id) }

// AppendRecord appends a record with its payload as stored, and the zeros behind it. All of r is set.
func AppendRecord(dst []byte, id ID, r *Record, payload []byte) []byte {
	n := len(dst)
	dst = append(dst, make([]byte, RecordHeaderSize)...)
	r.put(dst[n:], id)
	dst = append(dst, payload...)
	return append(dst, make([]byte, int(Size(len(payload)))-(len(dst)-n))...)
}

// AppendFooter appends the footer and the trailer of a segment of recs, ascending by offset, which end at
// end.
func AppendFooter(dst []byte, id ID, recs []Record, end int64) []byte {
	a := appender(dst)
	writeFooter(&a, id, end, recs, time.Time{}) // an appender gives no error
	return a
}

// appender appends what is written, which is written without gaps.
type appender []byte

func (a *appender) WriteAt(p []byte, _ int64) (int, error) {
	*a = append(*a, p...)
	return len(p), nil
}
