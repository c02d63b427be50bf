package content

import (
	"fmt"

	"ckptfs/cas"
	"ckptfs/index/manifest"
)

// Complete reads a manifest and its chunk lists, from the segments, and looks whether the index has every
// chunk, and every base of a delta. It decodes no chunk: what rots in one is found by check. An error that
// wraps cas.ErrCorrupt or cas.ErrNotFound says that the file cannot be read by its manifest.
func (c *Files) Complete(h cas.Hash) (*manifest.Manifest, error) {
	m, err := c.manifest(h)
	if err != nil {
		return nil, err
	}
	const most = 1 << 16 // hashes asked for at once
	var hashes []cas.Hash
	var locs []cas.Location
	ask := func() error {
		if len(locs) < len(hashes) {
			locs = make([]cas.Location, len(hashes))
		}
		if err := c.store.Locate(hashes, locs[:len(hashes)]); err != nil {
			return err
		}
		for i, h := range hashes {
			if locs[i].Segment == 0 {
				return &cas.ChunkError{Hash: h, Err: cas.ErrNotFound}
			}
			if _, err := c.store.Bases(h, locs[i]); err != nil {
				return err
			}
		}
		hashes = hashes[:0]
		return nil
	}
	for _, o := range m.Objects {
		spans, err := o.Spans(c.store.Get)
		if err != nil {
			return nil, fmt.Errorf("chunk list: %w", err)
		}
		for _, s := range spans {
			if hashes = append(hashes, s.Hash); len(hashes) == most {
				if err := ask(); err != nil {
					return nil, err
				}
			}
		}
	}
	return m, ask()
}

// manifest reads a manifest from the segments.
func (c *Files) manifest(h cas.Hash) (*manifest.Manifest, error) {
	p, err := c.store.Get(h, nil)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	m, err := manifest.Decode(p)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return m, nil
}
