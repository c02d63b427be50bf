package unmount

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"ckptfs/cmd/ckptfs/procs"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

// InUse says that a mount is in use, and by whom. found: by somebody who can be seen.
func InUse(ctx context.Context, c *control.Client, mountpoint string, dev procs.Device) (
	found bool, message string) {
	message = mountpoint + " is in use"
	st, err := c.Status(ctx)
	open := err == nil && st.OpenFiles > 0
	if open {
		message += ", with " + text.Plural(int64(st.OpenFiles), "open file")
	}
	who := procs.Users(dev)
	if who != "" {
		message += ", by " + who
	}
	return open || who != "", message
}

// Late is the error of a mount that is in use when ctx ends: err, unless the cause is that the time is over.
// Of the users, told has what was said of them before, which is not said again.
func Late(ctx context.Context, err, over error, mountpoint, told string, dev procs.Device) error {
	if !errors.Is(context.Cause(ctx), over) {
		return err
	}
	message := fmt.Sprintf("%s not unmounted: %v", mountpoint, over)
	if who := procs.Users(dev); who != "" && !strings.Contains(told, who) {
		message += "; it is in use by " + who
	}
	return control.Busy(message + "; --lazy detaches it")
}
