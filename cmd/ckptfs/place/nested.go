package place

import (
	"fmt"
	"path/filepath"

	"github.com/moby/sys/mountinfo"
)

// Nested fails for the folder of a store, an absolute path, that lies in another store. A mount keeps no
// attributes of a store, so that nothing could be packed. What lies in a store's folder is that store's.
func Nested(store string, mounts []*mountinfo.Info) error {
	if p := InMount(store, mounts); p != nil {
		return fmt.Errorf("%s lies in %s, where the store %s is mounted, and a store in a mount cannot pack: "+
			"give a folder outside of the mount", store, p.Mount.Mountpoint, p.Store)
	}
	p, err := inStore(filepath.Dir(store))
	if err == nil && p == nil {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%s lies in the folder of the store %s: give a folder outside of it", store, p.Store)
}
