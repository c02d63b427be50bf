package fusefs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// subtype is what mount(8) says behind "fuse.".
const subtype = "ckptfs"

// mountOptions are what the kernel, or fusermount3, is told of a mount. All else is settled by INIT.
type mountOptions struct {
	source     string // the first column of mount(8); "": the subtype
	maxRead    int    // the most bytes of one READ
	allowOther bool
	words      []string // mount(8)'s
	flags      uintptr  // mount(2)'s, where no fusermount3 is needed
}

// mountDevice mounts, and returns the descriptor of /dev/fuse that the mount's requests come by. The mount
// lives as long as anybody has that open file. Its first request, INIT, waits to be read.
//
// Root does it by mount(2). Others, and root where that is refused, have fusermount3 do it.
func mountDevice(mountpoint string, o mountOptions) (fd int, err error) {
	mountpoint, err = filepath.Abs(mountpoint)
	if err != nil {
		return -1, err
	}
	if os.Geteuid() != 0 {
		return mountByHelper(mountpoint, o)
	}
	fd, direct := mountDirect(mountpoint, o)
	if direct == nil {
		return fd, nil
	}
	if fd, err = mountByHelper(mountpoint, o); err != nil {
		return -1, fmt.Errorf("%w; %w", os.NewSyscallError("mount", direct), err)
	}
	return fd, nil
}

func mountDirect(mountpoint string, o mountOptions) (fd int, err error) {
	var st unix.Stat_t
	if err := unix.Stat(mountpoint, &st); err != nil {
		return -1, err
	}
	fd, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	source := o.source
	if source == "" {
		source = subtype
	}
	flags, data := o.direct(fd, st.Mode)
	if err := unix.Mount(source, mountpoint, "fuse."+subtype, flags, data); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// wordFlags are the words that mount(2) takes as flags only; a word of clear takes its flag away.
var wordFlags = map[string]struct {
	flag  uintptr
	clear bool
}{
	"nodev": {flag: unix.MS_NODEV}, "dev": {flag: unix.MS_NODEV, clear: true},
	"nosuid": {flag: unix.MS_NOSUID}, "suid": {flag: unix.MS_NOSUID, clear: true},
	"noexec": {flag: unix.MS_NOEXEC}, "exec": {flag: unix.MS_NOEXEC, clear: true},
}

// direct are mount(2)'s flags and data. fd is of /dev/fuse, mode the mountpoint's.
func (o *mountOptions) direct(fd int, mode uint32) (flags uintptr, data string) {
	flags = o.flags
	words := []string{
		fmt.Sprintf("fd=%d", fd),
		fmt.Sprintf("rootmode=%o", mode&unix.S_IFMT),
		fmt.Sprintf("user_id=%d", os.Geteuid()),
		fmt.Sprintf("group_id=%d", os.Getegid()),
		fmt.Sprintf("max_read=%d", o.maxRead),
	}
	for _, w := range o.words {
		switch f, ok := wordFlags[w]; {
		case !ok:
			words = append(words, w)
		case f.clear:
			flags &^= f.flag
		default:
			flags |= f.flag
		}
	}
	if o.allowOther {
		words = append(words, "allow_other")
	}
	return flags, strings.Join(words, ",")
}

// helper is fusermount3's -o. It adds the rest itself.
func (o *mountOptions) helper() string {
	words := append([]string(nil), o.words...)
	if o.allowOther {
		words = append(words, "allow_other")
	}
	if o.source != "" {
		words = append(words, "fsname="+o.source)
	}
	words = append(words, "subtype="+subtype, fmt.Sprintf("max_read=%d", o.maxRead))
	for i, w := range words {
		words[i] = strings.NewReplacer(`\`, `\\`, `,`, `\,`).Replace(w)
	}
	return strings.Join(words, ",")
}

// mountByHelper has fusermount3 mount. It sends the descriptor back by the socket that _FUSE_COMMFD names.
// What it says on standard error is why it did not.
func mountByHelper(mountpoint string, o mountOptions) (fd int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socketpair", err)
	}
	defer unix.Close(pair[0])
	remote := os.NewFile(uintptr(pair[1]), "fusermount3's end")
	defer remote.Close()
	program, err := helperProgram()
	if err != nil {
		return -1, err
	}
	var said bytes.Buffer
	cmd := exec.Command(program, mountpoint, "-o", o.helper())
	cmd.Env, cmd.ExtraFiles = []string{"_FUSE_COMMFD=3"}, []*os.File{remote}
	cmd.Stdout, cmd.Stderr = os.Stdout, &said
	if err := cmd.Run(); err != nil {
		if why := strings.TrimSpace(said.String()); why != "" {
			short := strings.NewReplacer(program+": ", filepath.Base(program)+": ", "\n", "; ")
			return -1, errors.New(short.Replace(why))
		}
		return -1, fmt.Errorf("%s: %w", program, err)
	}
	_, _ = os.Stderr.Write(said.Bytes())
	remote.Close() // where nothing was sent there is an end to be read
	return receive(pair[0])
}

// helperProgram is where fusermount3 is, or that of FUSE 2.
func helperProgram() (string, error) {
	var err error
	for _, name := range []string{"fusermount3", "fusermount"} {
		for _, path := range []string{name, "/bin/" + name} { // PATH may be empty
			var found string
			if found, err = exec.LookPath(path); err == nil {
				return found, nil
			}
		}
	}
	return "", err
}

// receive takes the one descriptor that was sent by a socket.
func receive(socket int) (fd int, err error) {
	var data [4]byte
	rights := make([]byte, unix.CmsgSpace(4))
	var n int
	for {
		if _, n, _, _, err = unix.Recvmsg(socket, data[:], rights, unix.MSG_CMSG_CLOEXEC); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return -1, os.NewSyscallError("recvmsg", err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil {
		return -1, err
	}
	if len(messages) != 1 {
		return -1, errors.New("fusermount sent no descriptor")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return -1, err
	}
	return fds[0], nil // there was room for one
}

// mostPages is the most bytes that the kernel carries in one request: 1 MiB unless its administrator set
// another limit.
func mostPages() int {
	pages := maxRequest / os.Getpagesize()
	if b, err := os.ReadFile("/proc/sys/fs/fuse/max_pages_limit"); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			pages = n
		}
	}
	return pages * os.Getpagesize()
}
