package posix

// posixDiffers: what FUSE or the kernel's passthrough does not do, or what is so on purpose. docs/posix.md
// has the list in words.
var posixDiffers = []posixDifference{
	{pattern: "*/*/collapse and insert", why: "the kernel's FUSE knows no COLLAPSE_RANGE and INSERT_RANGE: ENOTSUP"},
	{pattern: "*/*/ACLs", why: "POSIX ACLs are not kept: ENOTSUP"},
	{pattern: "*/*/security attributes", why: "security.* is not kept: ENOTSUP"},
	{pattern: "*/*/birth time", why: "FUSE's statx has no birth time"},
	{pattern: "*/*/inode flags", why: "no ioctl is passed on: ENOTTY"},
	{pattern: "served/*/O_DIRECT unaligned", why: "the daemon needs no alignment"},
	{pattern: "unprivileged/*/O_DIRECT unaligned", why: "the daemon needs no alignment"},
	{pattern: "passthrough/*/append taken off", why: "the kernel's own descriptor keeps O_APPEND"},
	{pattern: "served/*/map and truncate", why: "FUSE writes what a map put behind the end when the file grows"},
	{pattern: "unprivileged/*/map and truncate", why: "FUSE writes what a map put behind the end when the file grows"},
	{pattern: "passthrough/*/map and truncate", why: "FUSE writes what a map put behind the end when the file grows, if it is served", sometimes: true},
	{pattern: "passthrough/*/atime", why: "filling a file in again moves the inode's own change time, and so the access time at the next read", sometimes: true},
	{pattern: "*/*/map and times", why: "a page that a served map faults in is a read of the daemon's", sometimes: true},
}
