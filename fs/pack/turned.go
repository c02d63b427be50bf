package pack

import (
	"ckptfs/cas"
	"ckptfs/cas/anchor"
	"ckptfs/formats"
	"ckptfs/fs/recipes"
)

// maxTurned is how many tensors of a file are turned in vain to look for what they were turned from.
const maxTurned = 8

// turned is how t, all of r, may be computed of a tensor with its axes in reverse order; nil: it cannot be,
// as far as is known. It is turned itself, and the anchors of that are looked for. The error is of reading
// the file.
func (s *seeker) turned(t *formats.Tensor, r *formats.Region) (*recipes.Plan, error) {
	n, ok := anchor.NumbersOf(string(t.DType))
	ways := recipes.Turns(t)
	if !ok || n.Quantised() || len(ways) == 0 || s.noRecipes || s.inVain == maxTurned {
		return nil, nil
	}
	halves := make([]byte, 0, 2*t.NumElements())
	buf := make([]byte, cas.ChunkSize)
	for off := int64(0); off < r.Len; off += cas.ChunkSize {
		p, err := s.file.read(r, off, int(min(cas.ChunkSize, r.Len-off)))
		if err != nil {
			return nil, err
		}
		halves = append(halves, n.AsBF16(buf, p)...)
	}
	room := make([]byte, len(halves))
	for _, a := range ways {
		hits := s.fromFew(s.there(s.of.Find(recipes.TurnedKeys(halves, room, a), twoHits, maxHits), false))
		if len(hits) == 0 {
			continue
		}
		plan, err := s.finder().Turned(s.file.target(t, r), s.tensors(hits, false), a)
		if plan != nil || err != nil {
			return plan, err
		}
	}
	s.inVain++
	return nil, nil
}
