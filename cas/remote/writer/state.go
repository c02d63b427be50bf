package writer

import (
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
)

// State is what has to outlast the process. It may be lost as a whole, or be as it was some time ago: then
// Push finds that out, and registers again. It is used by one Push at a time; methods of objects.Places by
// others, too.
type State interface {
	objects.Places
	// Identity is what SetIdentity was given last; zero at first.
	Identity() (Identity, error)
	// SetIdentity is durable when it returns.
	SetIdentity(Identity) error
	// Learn notes that an object is there, and what lies in it. It may be called by several goroutines. What
	// is learned of a hash later wins. A crash may take it away.
	Learn(o record.Object, records []objects.Placed) error
	// Forget drops all places. It is durable when it returns.
	Forget() error
	// Epoch is the newest of which, and of all before, Condemn was told; 0 at first.
	Epoch() (uint32, error)
	// Condemn notes that the next epoch condemned what it did. It is durable when it returns.
	Condemn(epoch uint32, ids []record.ID) error
}

// Identity is who publishes, and what it has committed.
type Identity struct {
	Writer   record.Writer
	Instance record.ID // drawn when it was registered
	Commit   record.ID // the last that was acknowledged; zero: none was
	Sequence int64     // its number
	// Pending are commits of which no answer came. Each may have been made in the place of the one that
	// follows Commit, or may be made yet.
	Pending []record.ID
}
