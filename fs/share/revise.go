package share

import "bytes"

// revised is what is known of a name, nil: nothing, and what is from then on.
type revised struct{ was, is []byte }

// revise keeps by setting it what is known of names from now on, of those of which that is still known which
// it was made from. The others are returned: a push or a look noted something of them meanwhile.
func (s *Share) revise(names map[string]revised, setting func(map[string][]byte) error) (
	others map[string]bool, err error) {
	s.noting.Lock()
	defer s.noting.Unlock()
	others, set := map[string]bool{}, make(map[string][]byte, len(names))
	for p, r := range names {
		now, err := s.o.State.Name(p)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(now, r.was) {
			others[p] = true
			continue
		}
		set[p] = r.is
	}
	return others, setting(set)
}
