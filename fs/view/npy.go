package view

import (
	"fmt"

	"ckptfs/formats"
	"ckptfs/formats/npy"
)

// Npy plans the .npy file of one tensor of a file with these regions, as npy.AppendHeader has it. The error
// is ErrNoView when NumPy has no array for it.
func Npy(regions []formats.Region, t *formats.Tensor) (*View, error) {
	header, err := npy.AppendHeader(nil, t)
	if err != nil {
		return nil, fmt.Errorf("%w: tensor %q: %w", ErrNoView, t.Name, err)
	}
	v := &View{header: header, size: int64(len(header))}
	return v, v.add(regions, t)
}
