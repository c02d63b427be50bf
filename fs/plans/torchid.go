package plans

import "fmt"

// serializationID is what torch.save says of an archive of these records, without sums: a hash of their names,
// in the order in which a std::unordered_set of GNU's C++ has them, and one of as many zeros.
func serializationID(names []string) (string, error) {
	var s unorderedSet
	for _, name := range names {
		if err := s.insert(hashOf(name)); err != nil {
			return "", err
		}
	}
	var of, sums uint64
	for at := s.first; at != 0; at = s.nodes[at-1].next {
		of = combined(of, s.nodes[at-1].hash)
	}
	for range names {
		sums = combined(sums, 0)
	}
	return fmt.Sprintf("%020d%020d", of, sums), nil
}

// combined is c10's hash_combine.
func combined(seed, value uint64) uint64 {
	return seed ^ (value + 0x9e3779b9 + seed<<6 + seed>>2)
}

// hashOf is std::hash of a string: MurmurHash64A.
func hashOf(s string) uint64 {
	const mul = 0xc6a4a7935bd1e995
	mix := func(x uint64) uint64 { return x ^ x>>47 }
	h := 0xc70f6907 ^ uint64(len(s))*mul
	for ; len(s) >= 8; s = s[8:] {
		h = (h ^ mix(le.Uint64([]byte(s))*mul)*mul) * mul
	}
	if len(s) > 0 {
		var rest [8]byte
		copy(rest[:], s)
		h = (h ^ le.Uint64(rest[:])) * mul
	}
	return mix(mix(h) * mul)
}

// unorderedSet has the order of libstdc++'s std::unordered_set, of elements that differ. A bucket has the
// element before its first one. Elements are called by their numbers from 1 on; 0 is the head of the list.
type unorderedSet struct {
	nodes   []setNode
	first   int
	buckets map[uint64]int
	size    uint64 // buckets that there may be
}

type setNode struct {
	hash uint64
	next int
}

// bucketSizes are the numbers of buckets as a set grows.
var bucketSizes = []uint64{13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753, 42043, 85229, 172933}

func (s *unorderedSet) insert(hash uint64) error {
	if n := uint64(len(s.nodes)); n >= s.size {
		for _, size := range bucketSizes {
			if size > n {
				s.grow(size)
				break
			}
		}
		if n >= s.size {
			return none("it has more than %d tensors", n)
		}
	}
	s.nodes = append(s.nodes, setNode{hash, 0})
	s.link(len(s.nodes), s.bucket(len(s.nodes)))
	return nil
}

func (s *unorderedSet) bucket(node int) uint64 { return s.nodes[node-1].hash % s.size }

// next is where the element after one is said.
func (s *unorderedSet) next(node int) *int {
	if node == 0 {
		return &s.first
	}
	return &s.nodes[node-1].next
}

// link puts an element first in its bucket, or first of all with a bucket of its own.
func (s *unorderedSet) link(node int, bucket uint64) {
	before, ok := s.buckets[bucket]
	if !ok {
		if s.first != 0 {
			s.buckets[s.bucket(s.first)] = node
		}
		s.buckets[bucket] = 0
	}
	*s.next(node) = *s.next(before)
	*s.next(before) = node
}

// grow links all elements again, in their order.
func (s *unorderedSet) grow(size uint64) {
	at := s.first
	s.first, s.size, s.buckets = 0, size, map[uint64]int{}
	for at != 0 {
		node := at
		at = s.nodes[node-1].next
		s.link(node, s.bucket(node))
	}
}
