package remote

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/rated"
	"ckptfs/cas/remote/web"
	"ckptfs/cmd/ckptfs/size"
	"ckptfs/cmd/ckptfs/text"
)

// What --push may be.
const (
	pushAuto   = "auto"
	pushManual = "manual"
)

// MountFlags are the flags of a mount that are about its remote.
type MountFlags struct {
	url string
	addressFlags
	role
	address remote.Address // of url, if that is given
	runs    []string

	push, mirror       string
	pushRate, pullRate size.Flag
	cache, keepFree    size.Flag
	poll, timeout      time.Duration
}

// Add defines the flags.
func (m *MountFlags) Add(f *pflag.FlagSet) {
	f.StringVar(&m.url, "remote", "", "URL of the remote that a store is to have: one that has none, or is made now, joins it; of a store that has it only this flag can be left out")
	m.addressFlags.add(f)
	m.role.add(f)
	f.StringSliceVar(&m.runs, "runs", nil, "of others' runs only those appear whose names match such a pattern (*, ?, […]); all if not given")
	m.pushRate, m.pullRate, m.cache = size.Default("0", 0), size.Default("0", 0), size.Default("0", 0)
	f.StringVar(&m.push, "push", pushAuto, "publish complete steps to the store's remote: auto, or manual, when a command says so")
	f.DurationVar(&m.poll, "remote-poll", 15*time.Second, "ask the remote so often for what other machines published")
	f.DurationVar(&m.timeout, "remote-timeout", 5*time.Minute, "ask a remote that is busy or cannot be reached again for so long, before a read fails")
	f.Var(&m.cache, "remote-cache", "bound on what is kept on the disk of what was read of the remote; 0 is a tenth of the disk, at most 64GiB")
	f.Var(&m.pushRate, "push-rate", "bound on what is sent to the remote in a second, such as 50MiB; 0 is none")
	m.keepFree = size.Auto(true)
	f.Var(&m.keepFree, "keep-free", "while less of the disk is free, published files are dropped, least recently used first: a size, N% of the disk up to 90%, 0 for never; auto is 5%")
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
	if p := m.keepFree.Percent(); p > mostFree {
		return fmt.Errorf("--keep-free %s: give at most %d%%", &m.keepFree, mostFree)
	}
	if n := m.cache.Bytes; n > 0 && n < leastCache {
		return fmt.Errorf("--remote-cache %s: give at least 1MiB, or 0 for a tenth of the disk", &m.cache)
	}
	if m.timeout < time.Second {
		return fmt.Errorf("--remote-timeout %s: give at least 1s", m.timeout)
	}
	if err := m.checkJoin(); err != nil {
		return err
	}
	for _, p := range m.runs {
		if _, err := path.Match(p, ""); err != nil || strings.Contains(p, "/") {
			return fmt.Errorf("--runs %q: give a pattern of a run's name, without slashes", p)
		}
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

// checkJoin checks the flags of a store that joins a remote.
func (m *MountFlags) checkJoin() (err error) {
	if m.url != "" {
		m.address, err = m.of(m.url)
		return err
	}
	if m.addressFlags != (addressFlags{}) || m.role != (role{}) {
		return errors.New("--endpoint, --region, --path-style, --profile, --insecure-http, --writer and --reader " +
			"say more of the URL that --remote gives")
	}
	return nil
}

// Runs are patterns of the names of runs, of which those appear that others published; none: all do.
func (m *MountFlags) Runs() []string { return m.runs }

// Publishes reports whether complete steps are published without being asked for.
func (m *MountFlags) Publishes() bool { return m.push == pushAuto }

// Poll is how often the remote is asked for what others published.
func (m *MountFlags) Poll() time.Duration { return m.poll }

// KeepFree is how many bytes are kept free of the disk that dir lies on.
func (m *MountFlags) KeepFree(dir string) (int64, error) {
	if !m.keepFree.Given {
		return size.OfDisk(dir, keepFree)
	}
	n, err := m.keepFree.Of(dir)
	if err != nil {
		return 0, err
	}
	most, err := size.OfDisk(dir, mostFree)
	if err == nil && n > most {
		err = fmt.Errorf("--keep-free %s: give at most %d%% of the disk, here %s", &m.keepFree, mostFree,
			text.Bytes(most))
	}
	return n, err
}

// keepFree is the default of --keep-free in percent, and mostFree bounds it. It is more than the share below
// which hot copies go: a save that comes finds room.
const (
	keepFree = 5
	mostFree = 90
)

// leastCache is the least for --remote-cache, if it is not 0.
const leastCache = 1 << 20

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
