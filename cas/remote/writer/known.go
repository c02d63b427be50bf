package writer

import (
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

// Head is the writer's head as it was read or committed last; nil if it was not read yet. It is not to be
// changed. No push is under way.
func (w *Writer) Head() (*record.Head, bucket.Version) { return w.head, w.version }
