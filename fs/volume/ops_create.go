package volume

import (
	"context"

	"golang.org/x/sys/unix"

	"ckptfs/fs/names"
	"ckptfs/fs/tree"
)

// Create makes a regular file and opens it. EEXIST when the name is taken.
func (v *Volume) Create(
	dir *names.Node, name string, mode, flags uint32, c tree.Caller,
) (*names.Node, tree.Attr, *Handle, error) {
	if dir.Synth() != nil {
		n, a, err := found(dir.Synth().Create(dir, name))
		if err != nil {
			return nil, tree.Attr{}, nil, err
		}
		h, err := v.openSynthetic(context.Background(), c, n, flags)
		if err != nil {
			n.Unpin()
			return nil, tree.Attr{}, nil, err
		}
		return n, a, h, nil
	}
	made, err := v.names.MakeFile(dir, name, mode, flags, c)
	if err != nil {
		return nil, tree.Attr{}, nil, err
	}
	v.bases.Came(dir.Ino(), name)
	return openMade(made, flags, c)
}

// Mknod makes a regular file, a fifo, a socket or a device.
func (v *Volume) Mknod(
	dir *names.Node, name string, mode, rdev uint32, c tree.Caller,
) (*names.Node, tree.Attr, error) {
	if t := mode & unix.S_IFMT; t == unix.S_IFREG || t == 0 {
		m, err := v.names.MakeFile(dir, name, mode, unix.O_RDONLY, c)
		if err != nil {
			return nil, tree.Attr{}, err
		}
		v.bases.Came(dir.Ino(), name)
		m.Close()
		return m.Node, m.Attr, nil
	}
	return v.names.Make(dir, name, c, &mode, func(fd int) error {
		return unix.Mknodat(fd, name, mode&unix.S_IFMT|0o600, int(rdev))
	})
}

// Mkdir makes a directory.
func (v *Volume) Mkdir(
	dir *names.Node, name string, mode uint32, c tree.Caller,
) (*names.Node, tree.Attr, error) {
	mkdir := func(fd int) error { return unix.Mkdirat(fd, name, 0o700) }
	n, a, err := v.names.Make(dir, name, c, &mode, mkdir)
	if err == nil {
		v.bases.Came(dir.Ino(), name)
		v.sharing.touchIn(dir, name)
	}
	return n, a, err
}

// Symlink makes a symbolic link.
func (v *Volume) Symlink(
	dir *names.Node, name, target string, c tree.Caller,
) (*names.Node, tree.Attr, error) {
	n, a, err := v.names.Make(dir, name, c, nil,
		func(fd int) error { return unix.Symlinkat(target, fd, name) })
	if err == nil {
		v.sharing.touchIn(dir, name)
	}
	return n, a, err
}

// Tmpfile makes a regular file without a name and opens it.
func (v *Volume) Tmpfile(
	dir *names.Node, mode, flags uint32, c tree.Caller,
) (*names.Node, tree.Attr, *Handle, error) {
	m, err := v.names.MakeUnnamed(dir, mode, flags, c)
	if err != nil {
		return nil, tree.Attr{}, nil, err
	}
	return openMade(m, flags, c)
}

// openMade opens a file that was made just now.
func openMade(m names.Made, flags uint32, c tree.Caller) (*names.Node, tree.Attr, *Handle, error) {
	h, err := m.Open(flags, c.Thread)
	if err != nil {
		return nil, tree.Attr{}, nil, err
	}
	return m.Node, m.Attr, handleOf(m.Node, h), nil
}
