package pack

import (
	"encoding/binary"
	"maps"
	"slices"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/fs/recipes"
)

// maxRoles bounds the roles of a file, and leastRole the numbers of a tensor that has one.
const (
	maxRoles  = 64
	leastRole = 1 << 12
)

// Roles are hashes of what the tensors of a file are in a model, whichever layer they are of: the ends of
// their names, also of those that they have in other formats, with their shapes. They are the same in other
// types. Of very many there are the least.
func Roles(tensors []formats.Tensor) []uint64 {
	roles := map[uint64]bool{}
	add := func(name string, shape []int64) {
		ends := endings(name, 2)
		key := []byte(ends[len(ends)-1])
		for _, d := range shape {
			key = binary.BigEndian.AppendUint64(key, uint64(d))
		}
		x := cas.SumXXH3(key)
		roles[binary.BigEndian.Uint64(x[:])] = true
	}
	for i := range tensors {
		t := &tensors[i]
		if t.Region < 0 || t.NumElements() < leastRole {
			continue
		}
		add(plainName(t.Name), t.Shape)
		for _, name := range recipes.Names(t.Name) {
			add(name, t.Shape)
		}
	}
	all := slices.Sorted(maps.Keys(roles))
	return all[:min(len(all), maxRoles)]
}
