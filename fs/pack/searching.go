package pack

import (
	"fmt"
	"runtime/debug"
)

// A SearchError is a fault of the search for what a file may be stored with the help of. The file is stored
// without help then: what it is like matters less than the mount, which a panic would end, at each start.
type SearchError struct {
	Panic any
	Stack []byte
}

func (e *SearchError) Error() string { return fmt.Sprintf("panic: %v", e.Panic) }

// searching runs a part of the search. It holds no lock that a panic would leave.
func searching(part func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &SearchError{v, debug.Stack()}
		}
	}()
	return part()
}
