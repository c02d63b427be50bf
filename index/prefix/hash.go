package prefix

import (
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"

	"ckptfs/formats"
	"ckptfs/index/graph"
)

// key identifies a tree, a vertex with all that leads to it, for as long as the catalogue lives. It is a hash
// of 64 bits with a secret that is drawn when the catalogue is made: graphs whose keys collide cannot be
// prepared, and should two collide all the same, the map that is read off the graphs shows it.
//
//	key(v)   = mix(id of the configuration ^ s0, number of inputs << 1 | comm ^ s1), then
//	           in order     for each input: k = mix(k ^ s2, key(input) + output * odd ^ s3)
//	           in any order k = mix(k ^ s2, sum over the inputs of mix(key(input) ^ s3, output ^ s0))
//	key(v,k) = of the vertex that has k others of the same key before it: mix(key(v) ^ s1, k ^ s3), k > 0
//
// The id of a configuration is random. mix is the two halves of the product of 128 bits, one xor the other.
// The two lowest bits of a key are 0.
type key = uint64

type secret [4]uint64

func newSecret() secret {
	return secret{rand.Uint64() | 1, rand.Uint64() | 1, rand.Uint64() | 1, rand.Uint64() | 1}
}

func mum(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// tree is the key of a vertex with these inputs, as an intGraph has them, where t holds those of the vertices
// before it.
func (s *secret) tree(id uint64, comm bool, inputs []uint32, t []key) key {
	n := uint64(len(inputs)) << 1
	if comm {
		n |= 1
	}
	k := mum(id^s[0], n^s[1])
	if comm {
		sum := uint64(0)
		for _, e := range inputs {
			sum += mum(t[e>>16]^s[3], uint64(e&0xffff)^s[0])
		}
		return mum(k^s[2], sum) &^ flags
	}
	for _, e := range inputs {
		k = mum(k^s[2], t[e>>16]+uint64(e&0xffff)*0x9e3779b97f4a7c15^s[3])
	}
	return k &^ flags
}

// again is the key of a tree that occurs k times before.
func (s *secret) again(t key, k int) key {
	if k == 0 {
		return t
	}
	return mum(t^s[1], uint64(k)^s[3]) &^ flags
}

// keyring is the keys of a graph.
type keyring struct {
	ints  intGraph
	text  []byte // intGraph.append
	trees []key  // by vertex: of its tree
	keys  []key  // by vertex: with the occurrence
	first []int  // by vertex: the first that has its tree
	twins bool   // some tree occurs twice

	seen weights
}

// hash sets the keys of r.ints, where id is that of a vertex's configuration.
func (r *keyring) hash(s *secret, id func(v int) uint64) {
	r.trees, r.keys, r.first, r.twins = r.trees[:0], r.keys[:0], r.first[:0], false
	r.seen.reset(len(r.ints.label))
	for v, l := range r.ints.label {
		t := s.tree(id(v), l&1 != 0, r.ints.inputs(v), r.trees)
		k, first := r.seen.again(t, v)
		r.trees = append(r.trees, t)
		r.keys = append(r.keys, s.again(t, k))
		r.first = append(r.first, first)
		r.twins = r.twins || k > 0
	}
}

// identity is what keys are made of. It is the same for all kinds.
type identity struct {
	secret  secret
	configs configs
}

// tree is the key of a vertex with this label.
func (i *identity) tree(label uint32, inputs []uint32, t []key) key {
	return i.secret.tree(i.configs.all[label>>1].id, label&1 != 0, inputs, t)
}

// read sets r to the keys of an arch.
func (r *keyring) read(x *index, a uint32) {
	r.ints.read(x.archs[a].shape)
	x.keys(r)
}

// keys sets the keys of r.ints.
func (i *identity) keys(r *keyring) {
	r.hash(&i.secret, func(v int) uint64 { return i.configs.all[r.ints.label[v]>>1].id })
}

// configs numbers configurations.
type configs struct {
	seed  maphash.Seed
	slots []uint32 // open addressing: 1 + index into all; 0 is free
	all   []config
}

// config is what a vertex is, whatever it is connected to. Its number is its place among all.
type config struct {
	hash, id   uint64
	op, config string
	params     []graph.Param // those that identity is made of
}

func newConfigs() configs { return configs{seed: maphash.MakeSeed(), slots: make([]uint32, 64)} }

// find is the number of v's configuration. When there is none it is added, or found is false.
func (c *configs) find(v *graph.Vertex, add bool) (n uint32, found bool) {
	h := c.hash(v.Op, v.Config, v.Params)
	mask := len(c.slots) - 1
	i := int(h) & mask
	for ; c.slots[i] != 0; i = (i + 1) & mask {
		if e := &c.all[c.slots[i]-1]; e.hash == h && e.is(v) {
			return c.slots[i] - 1, true
		}
	}
	if !add {
		return 0, false
	}
	// not the document that they are parts of
	e := config{hash: h, id: rand.Uint64(), op: strings.Clone(v.Op), config: strings.Clone(v.Config)}
	for _, p := range v.Params {
		if !p.Attached {
			e.params = append(e.params, graph.Param{Slot: strings.Clone(p.Slot),
				DType: formats.DType(strings.Clone(string(p.DType))), Shape: slices.Clone(p.Shape)})
		}
	}
	return c.add(e), true
}

// add numbers a configuration that has no number.
func (c *configs) add(e config) uint32 {
	c.all = append(c.all, e)
	if 2*len(c.all) > len(c.slots) {
		c.slots = make([]uint32, 2*len(c.slots))
		for n := range c.all[:len(c.all)-1] {
			c.put(uint32(n))
		}
	}
	c.put(uint32(len(c.all) - 1))
	return uint32(len(c.all) - 1)
}

func (c *configs) put(n uint32) {
	mask := len(c.slots) - 1
	i := int(c.all[n].hash) & mask
	for c.slots[i] != 0 {
		i = (i + 1) & mask
	}
	c.slots[i] = n + 1
}

func (c *configs) hash(op, config string, params []graph.Param) uint64 {
	h := maphash.String(c.seed, config) ^ bits.RotateLeft64(maphash.String(c.seed, op), 1)
	for i := range params {
		if p := &params[i]; !p.Attached {
			h = mum(h^maphash.String(c.seed, p.Slot),
				0x9e3779b97f4a7c15^maphash.String(c.seed, string(p.DType)))
			for _, d := range p.Shape {
				h = mum(h^uint64(d), 0xbf58476d1ce4e5b9)
			}
		}
	}
	return h
}

// is reports whether c is v's configuration.
func (c *config) is(v *graph.Vertex) bool {
	if c.op != v.Op || c.config != v.Config {
		return false
	}
	n := 0
	for i := range v.Params {
		p := &v.Params[i]
		if p.Attached {
			continue
		}
		if n == len(c.params) || c.params[n].Slot != p.Slot || c.params[n].DType != p.DType ||
			p.DType != "" && !slices.Equal(c.params[n].Shape, p.Shape) {
			return false
		}
		n++
	}
	return n == len(c.params)
}

func label(n uint32, v *graph.Vertex) uint32 {
	if v.Commutative {
		return n<<1 | 1
	}
	return n << 1
}
