package disk

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// unreadable are the errors that say that the medium, or the filesystem on it, has not what was asked for.
// They are those of Linux for a failed or refused block, checksum or inode, and for a name that is no file.
var unreadable = []error{
	unix.EIO,
	unix.EREMOTEIO,
	unix.EBADMSG, // a checksum of the filesystem
	unix.EUCLEAN, // its metadata
	unix.ENODATA, // a medium error, of some devices
	unix.EILSEQ,  // a checksum of the device
	unix.ELOOP,   // a symbolic link
	unix.ENXIO,   // a socket
	unix.EISDIR,
	errNoFile,
}

// Unreadable reports whether err, of opening a file or of reading it, means that the disk has not the bytes.
// Of all other errors, as those of memory, descriptors, permissions and time, nothing follows for them.
func Unreadable(err error) bool {
	return slices.ContainsFunc(unreadable, func(e error) bool { return errors.Is(err, e) })
}
