package integration

// What FUSE or the kernel's passthrough does not do, or what is so on purpose. docs/posix.md has the list in words.
var posixStays = []posixDifference{
	{"*/*/collapse and insert", "the kernel's FUSE knows no COLLAPSE_RANGE and INSERT_RANGE: ENOTSUP"},
	{"*/*/ACLs", "POSIX ACLs are not kept: ENOTSUP"},
	{"*/*/security attributes", "security.* is not kept: ENOTSUP"},
	{"*/*/birth time", "FUSE's statx has no birth time"},
	{"*/*/inode flags", "no ioctl is passed on: ENOTTY"},
	{"served/*/O_DIRECT unaligned", "the daemon needs no alignment"},
	{"unprivileged/*/O_DIRECT unaligned", "the daemon needs no alignment"},
	{"passthrough/*/append taken off", "the kernel's own descriptor keeps O_APPEND"},
	{"passthrough/*/opened and not written keeps set-user-id", "the daemon does not hear of a write by passthrough: set-user-id goes at the open"},
	{"served/*/map and truncate", "FUSE writes what a map put behind the end when the file grows"},
	{"unprivileged/*/map and truncate", "FUSE writes what a map put behind the end when the file grows"},
}

// What is to be mended.
var posixKnown = []posixDifference{
	{"*/*/a running program", "O_RDONLY|O_TRUNC of a running program"},
	{"*/*/atime", "the access time of packed files"},
	{"*/*/chown", "chown(-1, -1) moves ctime"},
	{"*/*/rename leaving a whiteout", "RENAME_WHITEOUT"},
	{"*/*/same number for ever", "ctime moves by packing"},
	{"*/*/map and times", "atime moves by a write"},
	{"*/*/set-group-id folders", "O_TMPFILE in a set-group-id folder"},
	{"*/*/set-user-id", "set-group-id without x, write by somebody else"},
	{"*/*/xattrs by other users", "trusted.* is listed for everybody"},
}

var posixDiffers = append(posixStays, posixKnown...)
