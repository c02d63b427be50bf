package models

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
	fssteps "ckptfs/fs/steps"
	"ckptfs/index/runs"
)

// attributes are those of a checkpoint that its weights get: the user's, and, of Lightning's, the metrics that
// were read from it.
func (d *dropper) attributes(f *os.File, step, rel string) (map[string][]byte, error) {
	attrs := map[string][]byte{}
	fd := int(f.Fd())
	list := make([]byte, 64<<10) // more than the kernel has of a file
	n, err := unix.Flistxattr(fd, list)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, fmt.Errorf("its attributes: %w", err)
	}
	for name := range strings.SplitSeq(string(list[:max(n, 0)]), "\x00") {
		if !strings.HasPrefix(name, "user.") {
			continue
		}
		value := make([]byte, 64<<10)
		k, err := unix.Fgetxattr(fd, name, value)
		if err != nil {
			return nil, fmt.Errorf("its attribute %s: %w", name, err)
		}
		attrs[name] = value[:k]
	}
	if path.Ext(rel) != fssteps.LightningSuffix {
		return attrs, nil
	}
	metrics, err := d.metrics(step)
	maps.Copy(attrs, metrics)
	return attrs, err
}

// metrics are those of a step, as attributes.
func (d *dropper) metrics(step string) (map[string][]byte, error) {
	i := slices.IndexFunc(d.log.Steps, func(s control.Step) bool { return s.Step == step })
	if i < 0 {
		return nil, nil
	}
	if problem := d.log.Steps[i].Problem; problem != "" {
		return nil, fmt.Errorf("its metrics cannot be read, and would be lost: %s", problem)
	}
	attrs := map[string][]byte{}
	for name, m := range d.log.Steps[i].Metrics {
		attrs[runs.XattrPrefix+name] = strconv.AppendFloat(nil, float64(m), 'g', -1, 64)
	}
	return attrs, nil
}

// noteMetrics gives a step that is a folder the metrics that it has, also those that were read from a file.
func (d *dropper) noteMetrics(root *os.Root, step string) error {
	metrics, err := d.metrics(step)
	if err != nil {
		return err
	}
	dir, err := root.Open(step)
	if err != nil {
		return err
	}
	defer dir.Close()
	for name, value := range metrics {
		if err := unix.Fsetxattr(int(dir.Fd()), name, value, 0); err != nil {
			return fmt.Errorf("the attribute %s of %s: %w", name, step, err)
		}
	}
	return nil
}
