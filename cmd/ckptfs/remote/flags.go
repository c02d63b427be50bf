package remote

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/rated"
	"ckptfs/cas/remote/web"
	"ckptfs/cmd/ckptfs/size"
)

// What --push may be.
const (
	pushAuto   = "auto"
	pushManual = "manual"
)

// MountFlags are the flags of a mount that are about its remote.
type MountFlags struct {
	push, mirror       string
	pushRate, pullRate size.Flag
	cache              size.Flag
	poll, timeout      time.Duration
}

// Add defines the flags.
func (m *MountFlags) Add(f *pflag.FlagSet) {
	m.pushRate, m.pullRate, m.cache = size.Default("0", 0), size.Default("0", 0), size.Default("0", 0)
	f.StringVar(&m.push, "push", pushAuto, "publish complete steps to the store's remote: auto, or manual, when a command says so")
	f.DurationVar(&m.poll, "remote-poll", 15*time.Second, "ask the remote so often for what other machines published")
	f.DurationVar(&m.timeout, "remote-timeout", 5*time.Minute, "ask a remote that is busy or cannot be reached again for so long, before a read fails")
	f.Var(&m.cache, "remote-cache", "bound on what is kept on the disk of what was read of the remote; 0 is a tenth of the disk, at most 64GiB")
	f.Var(&m.pushRate, "push-rate", "bound on what is sent to the remote in a second, such as 50MiB; 0 is none")
	f.StringVar(&m.mirror, "mirror", "", "URL of a server that has copies of the remote's objects: they are read there, and checked")
	f.Var(&m.pullRate, "pull-rate", "bound on what is read from the remote in a second; 0 is none")
}

// Check says what is wrong with them.
func (m *MountFlags) Check() error {
	if m.push != pushAuto && m.push != pushManual {
		return fmt.Errorf("--push %q: it is auto or manual", m.push)
	}
	if m.poll < time.Second {
		return fmt.Errorf("--remote-poll %s: give at least 1s", m.poll)
	}
	if m.timeout < time.Second {
		return fmt.Errorf("--remote-timeout %s: give at least 1s", m.timeout)
	}
	if m.mirror != "" {
		if _, err := web.Open(m.mirror, nil); err != nil {
			return fmt.Errorf("--mirror: %w", err)
		}
	}
	for name, rate := range map[string]*size.Flag{"push": &m.pushRate, "pull": &m.pullRate} {
		if rate.Bytes > 0 && rate.Bytes < rated.Least {
			return fmt.Errorf("--%s-rate %s: give at least 16KiB, or 0 for no bound", name, rate)
		}
	}
	return nil
}

// Publishes reports whether complete steps are published without being asked for.
func (m *MountFlags) Publishes() bool { return m.push == pushAuto }

// Poll is how often the remote is asked for what others published.
func (m *MountFlags) Poll() time.Duration { return m.poll }

// Cache bounds what is kept of what was read, in bytes; 0: as the disk is large.
func (m *MountFlags) Cache() int64 { return m.cache.Bytes }

// Timeout is for how long a read asks again.
func (m *MountFlags) Timeout() time.Duration { return m.timeout }

// Open opens the bucket of a remote for a mount.
func (m *MountFlags) Open() func(remote.Joined) (bucket.Bucket, error) {
	rates := rated.Rates{Put: m.pushRate.Bytes, Get: m.pullRate.Bytes}
	return func(j remote.Joined) (bucket.Bucket, error) {
		b, err := Open(j)
		if err == nil && m.mirror != "" {
			b, err = mirrored(b, m.mirror)
		}
		if err != nil || rates == (rated.Rates{}) {
			return b, err
		}
		return rated.New(b, rates), nil
	}
}

// mirrorPatience is for how long a mirror that is busy is asked again, before the bucket is.
const mirrorPatience = 2 * time.Second

// mirrored is b, of which a server has copies.
func mirrored(b bucket.Bucket, url string) (bucket.Bucket, error) {
	copies, err := web.Open(url, nil)
	if err != nil {
		return nil, err
	}
	return web.NewMirror(patiently(copies, mirrorPatience), b), nil
}
