package reader

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"ckptfs/cas/codec"
	"ckptfs/cas/half"
	"ckptfs/cas/quant"
	"ckptfs/cas/recipe"
)

// quantStreams is how many streams a quantising op has besides that of the bytes around blocks.
const quantStreams = len(quant.Streams{})

// follows is what a program makes of a base if nothing else is told.
func (c *payloads) follows(prog recipe.Program, base []byte, n, streams int) []byte {
	c.t.Helper()
	stored := append(prog.Append(nil), make([]byte, streams)...)
	raw, err := recipe.Decode(nil, stored, base, n)
	if err != nil {
		c.t.Fatalf("%+v: %v", prog, err)
	}
	return raw
}

// told adds raw as a program and what it leaves to be told. Behind the program stand the scales of FP8.
func (c *payloads) told(name string, prog recipe.Program, scales, raw, base []byte) {
	c.t.Helper()
	stored, ok := recipe.Encode(nil, append(prog.Append(nil), scales...), raw, base, 10*len(raw)+1000)
	if !ok {
		c.t.Fatalf("%s: not encoded", name)
	}
	c.add(name, codec.Recipe, stored, raw, base, nil)
	c.all[len(c.all)-1].Damage = 1 // there are many
}

// few reports whether way k of n is tried with a variant: each with the first, and one with each.
func few(k, n, variant int) bool { return variant == 0 || k == variant%n }

// weights are numbers as a model has them, with parts of zeros, of what is no number, and of the largest and
// smallest that there are.
func weights(seed uint64, n int) (x []float32, base []byte) {
	r := rand.New(rand.NewPCG(seed, 31))
	for i := range n {
		v := float32(r.NormFloat64() * 0.02)
		switch i / 16 % 32 {
		case 3, 4:
			v = 0
		case 9:
			v = float32(i%2*2-1) * 0.5 // two of the greatest magnitude
		case 14:
			v = []float32{v, float32(math.Inf(1)), v, float32(math.NaN())}[i%4]
		case 18, 19:
			v *= 1e38
		case 24, 25:
			v *= 1e-41
		case 28:
			v = float32(math.Abs(float64(v)))
		}
		x = append(x, v)
		base = binary.LittleEndian.AppendUint32(base, math.Float32bits(v))
	}
	return x, base
}

// quantised has blocks of every format and variant: those that follow, those of which a few codes do not, and
// any; and such as the edges of chunks cut.
func (c *payloads) quantised() {
	r := rand.New(rand.NewPCG(32, 33))
	const n = 512
	for f := quant.Format(1); !f.Ruled(); f++ {
		if f.FP8() {
			continue
		}
		elems, size := f.Block()
		for variant := range f.Variants() {
			c.odd(f, uint8(variant))
			for k, plain := range []bool{false, true} {
				_, base := weights(uint64(k), n)
				if plain { // without anything that is out of the ordinary
					for i := range n {
						v := float32(r.NormFloat64() * 0.02)
						binary.LittleEndian.PutUint32(base[4*i:], math.Float32bits(v))
					}
				}
				prog := recipe.Program{recipe.Run(recipe.F32, 0, n), recipe.Widen{},
					recipe.Quantise{Quantiser: quant.Quantiser{Format: f, Variant: uint8(variant)}}}
				raw := c.follows(prog, base, n/elems*size, 2+quantStreams)
				name := fmt.Sprintf("%v, variant %d, %d", f, variant, k)
				c.told(name, prog, nil, raw, base)
				some := bytes.Clone(raw)
				for range 3 {
					some[r.IntN(len(some))] ^= byte(1 << r.IntN(8))
				}
				c.told(name+", some codes are others", prog, nil, some, base)
				any := bytes.Clone(raw)
				for i := range any {
					any[i] = byte(r.Uint32())
				}
				c.told(name+", all are others", prog, nil, any, base)
				head := r.IntN(size)
				prog[2] = recipe.Quantise{Head: head,
					Quantiser: quant.Quantiser{Format: f, Variant: uint8(variant)}}
				cut := append(append(bytes.Clone(any[:head]), some...), any[:r.IntN(size)]...)
				c.told(name+", cut", prog, nil, cut, base)
			}
		}
	}
}

// odd has an odd number of blocks: of zeros, of the least numbers, and of others, and any.
func (c *payloads) odd(f quant.Format, variant uint8) {
	elems, size := f.Block()
	n := 3 * elems
	for k := range 3 {
		_, base := weights(uint64(k), n)
		for i := range n {
			if v := []float32{0, float32(i%3) * 1e-43}; k < len(v) {
				binary.LittleEndian.PutUint32(base[4*i:], math.Float32bits(v[k]))
			}
		}
		prog := recipe.Program{recipe.Run(recipe.F32, 0, n), recipe.Widen{},
			recipe.Quantise{Quantiser: quant.Quantiser{Format: f, Variant: variant}}}
		raw := c.follows(prog, base, 3*size, 2+quantStreams)
		name := fmt.Sprintf("three blocks of %v, variant %d, %d", f, variant, k)
		c.told(name, prog, nil, raw, base)
		for i := range raw {
			raw[i] ^= byte(i * i)
		}
		c.told(name+", others", prog, nil, raw, base)
	}
}

// eightsScales are ways in which the elements of a matrix share scales. A chunk has eightsLen of them.
var eightsScales = []quant.Scales{{}, {Rows: 20, Cols: 16, Tall: 20, Wide: 16},
	{Rows: 20, Cols: 16, Tall: 1, Wide: 16}, {Rows: 100, Cols: 40, Tall: 8, Wide: 12, At: 100},
	{Rows: 3, Cols: 1000, Tall: 2, Wide: 50, At: 1900}, {Rows: 2, Cols: 400, Tall: 2, Wide: 40, At: 250}}

const eightsLen = 320

// eights has numbers of eight bits with scales of every type and shape.
func (c *payloads) eights() {
	r := rand.New(rand.NewPCG(34, 35))
	const n = eightsLen
	for _, f := range []quant.Format{quant.F8E4M3, quant.F8E5M2} {
		for variant := range f.Variants() {
			for k, scales := range eightsScales {
				if !few(k, len(eightsScales), variant) {
					continue
				}
				scales.Type = quant.Type((k + variant) % 3)
				x, base := weights(uint64(k), n)
				q := quant.Quantiser{Format: f, Variant: uint8(variant), Scales: scales}
				prog := recipe.Program{recipe.Run(recipe.F32, 0, n), recipe.Widen{},
					recipe.Quantise{Quantiser: q}}
				name := fmt.Sprintf("%v, variant %d, scales %d", f, variant, k)
				raw := c.follows(prog, base, len(x), 2+quantStreams)
				var values []byte
				for range q.Scales.Groups(n) {
					v := float32(math.Exp2(float64(r.IntN(12)))) * 1e-4
					if r.IntN(8) == 0 {
						v = 0
					}
					if scales.Type != quant.F32 { // a number of either type
						v = float32(math.Exp2(float64(r.IntN(12) - 9)))
					}
					values = binary.LittleEndian.AppendUint32(values, math.Float32bits(v))
				}
				for i := range 3 {
					c.told(fmt.Sprint(name, ", codes ", i), prog, values, raw, base)
					for j := range raw {
						if i == 1 || r.IntN(100) == 0 {
							raw[j] = byte(r.Uint32())
						}
					}
				}
			}
		}
	}
}

// ruled has codes whose scales follow by a rule, and such scales, for every rule and type.
func (c *payloads) ruled() {
	r := rand.New(rand.NewPCG(40, 41))
	const n = 512
	over := func(kind quant.RuleKind, levels float32) quant.Rule {
		return quant.Rule{Kind: kind, Levels: levels, Global: 1}
	}
	type scaled struct {
		typ  quant.Type
		wide int
		rule quant.Rule
	}
	single := []scaled{{quant.F32, 64, over(quant.Over, 1)}, {quant.F32, 64, over(quant.OverOr, 7.5)}}
	whole := append(single, scaled{quant.BF16, 64, over(quant.OverOr, 127.5)},
		scaled{quant.F16, 16, over(quant.OverOr, 127.5)})
	global := []scaled{{quant.E4M3, 16, quant.Rule{Kind: quant.Global, Levels: 6, Global: 2000}},
		{quant.E4M3, 16, quant.Rule{Kind: quant.GlobalBF16, Levels: 6, Global: 3}},
		{quant.E4M3, 16, quant.Rule{Kind: quant.GlobalF16, Levels: 6, Global: 1e4}},
		{quant.E4M3, 16, over(quant.OverOr, 6)}}
	power := []scaled{{quant.E8M0, 32, over(quant.Power, 1)}}
	for f, ways := range map[quant.Format][]scaled{
		quant.NF4: single[:1], quant.FP4: single[:1], quant.Int8: whole, quant.UInt8: whole,
		quant.Int4: whole, quant.NVFP4: global, quant.MXFP4Pairs: power,
		quant.ScalesOf: slices.Concat(whole, global, power),
	} {
		for variant := range f.Variants() {
			for k, way := range ways {
				if !few(k, len(ways), variant) {
					continue
				}
				q := quant.Quantiser{Format: f, Variant: uint8(variant), Scales: quant.Scales{Type: way.typ,
					Rows: 8, Cols: 64, Tall: 1, Wide: way.wide, Rule: way.rule}}
				if f == quant.ScalesOf {
					q.Scales.Rows, q.Scales.Cols = n/way.wide, way.wide
				}
				_, base := weights(uint64(k), n)
				prog := recipe.Program{recipe.Run(recipe.F32, 0, n), recipe.Widen{},
					recipe.Quantise{Quantiser: q}}
				elems, size := q.Block()
				raw := c.follows(prog, base, n/elems*size, 2+quantStreams)
				name := fmt.Sprintf("%v, variant %d, %d", f, variant, k)
				c.told(name, prog, nil, raw, base)
				var values []byte // others than follow
				if f != quant.ScalesOf {
					for range q.Scales.Groups(n) {
						v := float32(math.Exp2(float64(r.IntN(12) - 9)))
						values = binary.LittleEndian.AppendUint32(values, math.Float32bits(v))
					}
					c.told(name+", other scales", prog, values, raw, base)
				}
				for range 3 {
					raw[r.IntN(len(raw))] ^= byte(1 << r.IntN(8))
				}
				c.told(name+", some are others", prog, nil, raw, base)
				for i := range raw {
					raw[i] = byte(r.Uint32())
				}
				c.told(name+", all are others", prog, values, raw, base)
			}
		}
	}
}

// channels has codes of weights that were multiplied by factors of inputs, and divided by those of outputs,
// for every variant and type of scales: rows that begin and end within the chunk, in two groups and in one.
func (c *payloads) channels() {
	r := rand.New(rand.NewPCG(42, 43))
	const cols, group = 16, 12
	for variant := range quant.AWQ.Variants() {
		for _, of := range []struct{ at, n int }{{8, 20 * cols}, {13 * cols, 8 * cols}, {40, 8}} {
			scales := quant.Scales{Type: quant.Type(variant), Rows: 24, Cols: cols, Tall: group, Wide: 1,
				At: of.at}
			q := quant.Quantiser{Format: quant.AWQ, Variant: uint8(variant), Scales: scales}
			_, count, size, zeros := scales.AsideOf(of.n)
			x, base := weights(uint64(variant), of.n)
			at := len(base)
			factor := make([]float32, cols)
			for o := range factor {
				factor[o] = float32(math.Exp(0.5 * r.NormFloat64()))
			}
			for i := range count * cols {
				v := 0.01 * float32(math.Exp(0.2*r.NormFloat64()))
				if i == 5 {
					v = 0
				}
				switch b := math.Float32bits(v); scales.Type {
				case quant.F32:
					base = binary.LittleEndian.AppendUint32(base, b)
				case quant.BF16:
					base = binary.LittleEndian.AppendUint16(base, half.ToBF16(b))
				default:
					base = binary.LittleEndian.AppendUint16(base, half.ToF16(b))
				}
			}
			for range count * zeros {
				base = append(base, byte(r.Uint32()))
			}
			prog := recipe.Program{recipe.Run(recipe.F32, 0, of.n),
				recipe.Aside{Take: recipe.Run(recipe.Bytes1, at, count*(size+zeros))}, recipe.Widen{},
				recipe.Quantise{Quantiser: q}}
			name := fmt.Sprintf("AWQ, variant %d, %d from %d", variant, of.n, of.at)
			for _, folded := range []bool{false, true} {
				y := slices.Clone(x)
				for i := range y {
					row, o := (of.at+i)/cols, (of.at+i)%cols
					y[i] *= 1 + float32(row%5)/4
					if folded {
						y[i] /= factor[o]
					}
				}
				other := bytes.Clone(base)
				for i, v := range y {
					binary.LittleEndian.PutUint32(other[4*i:], math.Float32bits(v))
				}
				raw := c.follows(prog, other, of.n/2, 2+quantStreams)
				c.told(fmt.Sprintf("%s, outputs %v", name, folded), prog, nil, raw, base)
				for range 3 {
					raw[r.IntN(len(raw))] ^= byte(1 << r.IntN(8))
				}
				c.told(fmt.Sprintf("%s, outputs %v, some are others", name, folded), prog, nil, raw, base)
			}
			raw := make([]byte, of.n/2)
			for i := range raw {
				raw[i] = byte(r.Uint32())
			}
			c.told(name+", all are others", prog, nil, raw, base)
		}
	}
	none := quant.Quantiser{Format: quant.AWQ,
		Scales: quant.Scales{Rows: 24, Cols: cols, Tall: group, Wide: 1}}
	c.told("AWQ of nothing", recipe.Program{recipe.Run(recipe.F32, 0, 0), recipe.Widen{},
		recipe.Quantise{Quantiser: none}}, nil, nil, make([]byte, 16))
}

// dequantised has numbers that blocks stand for, as single precision and rounded: of any bytes, and of blocks
// whose scales are as models have them.
func (c *payloads) dequantised() {
	r := rand.New(rand.NewPCG(38, 39))
	add := func(name string, base []byte, n int, op recipe.Dequantise) {
		prog := recipe.Program{recipe.Run(recipe.Bytes1, 0, len(base)), op}
		c.add(name, codec.Recipe, append(prog.Append(nil), 0), c.follows(prog, base, 4*n, 1), base, nil)
		prog = append(prog, recipe.Round{To: half.BF16})
		c.add(name+", rounded", codec.Recipe, append(prog.Append(nil), 0), c.follows(prog, base, 2*n, 1),
			base, nil)
	}
	anything := func(n int) []byte {
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(r.Uint32())
		}
		return p
	}
	for f := quant.Format(1); !f.Ruled(); f++ {
		if f.FP8() {
			continue
		}
		elems, size := f.Block()
		const n = 512
		add(fmt.Sprintf("any numbers of %v", f), anything(n/elems*size), n, recipe.Dequantise{Format: f})
		_, base := weights(1, n)
		prog := recipe.Program{recipe.Run(recipe.F32, 0, n), recipe.Widen{},
			recipe.Quantise{Quantiser: quant.Quantiser{Format: f}}}
		blocks := c.follows(prog, base, n/elems*size, 2+quantStreams)
		add(fmt.Sprintf("numbers of %v", f), blocks, n, recipe.Dequantise{Format: f})
	}
	for k, scales := range eightsScales {
		for _, f := range []quant.Format{quant.F8E4M3, quant.F8E5M2} {
			scales.Type = quant.Type(k % 3)
			count, err := scales.Count(eightsLen)
			if err != nil {
				c.t.Fatal(err)
			}
			add(fmt.Sprintf("numbers of %v, scales %d", f, k),
				anything(eightsLen+count*scales.Type.Size()), eightsLen,
				recipe.Dequantise{Format: f, Scales: scales, N: eightsLen})
		}
	}
}

// combined has what is made of several vectors, in every form and type: what follows, and what does not
// quite.
func (c *payloads) combined() {
	r := rand.New(rand.NewPCG(36, 37))
	const n = 96
	for form := recipe.Sum; form <= recipe.StockEach; form++ {
		if !form.Known() {
			continue
		}
		for _, to := range []recipe.Type{recipe.F32, recipe.BF16, recipe.F16} {
			for k := range 3 {
				vectors := []int{1, 3, 8}[k]
				switch form {
				case recipe.Lerp, recipe.LerpEach:
					vectors = 2
				case recipe.Task, recipe.TaskEach:
					vectors = 3
				case recipe.Stock, recipe.StockEach:
					vectors = max(vectors, 2)
				}
				_, base := weights(uint64(k), n*vectors)
				o := recipe.Combine{Form: form, To: to}
				for range vectors {
					o.C = append(o.C, float32(r.NormFloat64()))
				}
				if k == 2 && (form == recipe.Mean || form == recipe.MeanEach) {
					o.C[0] = 0
				}
				w := to.Size()
				prog := recipe.Program{recipe.Run(recipe.F32, 0, n*vectors), recipe.Widen{}, o}
				raw := c.follows(prog, base, n*w, 1+w)
				name := fmt.Sprintf("form %d of %d vectors, as type %d", form, vectors, to)
				c.told(name, prog, nil, raw, base)
				raw[r.IntN(len(raw))] ^= byte(1 << r.IntN(8))
				c.told(name+", one is another", prog, nil, raw, base)
				for i := range raw {
					raw[i] = byte(r.Uint32())
				}
				c.told(name+", all are others", prog, nil, raw, base)
			}
		}
	}
}

// transposed has matrices of elements of all sizes, parts of them, and what has three axes.
func (c *payloads) transposed() {
	r := rand.New(rand.NewPCG(42, 43))
	for _, typ := range []recipe.Type{recipe.Bytes1, recipe.BF16, recipe.F32, recipe.Bytes8} {
		for _, dims := range [][3]int{{1, 1, 1}, {5, 1, 33}, {40, 1, 7}, {9, 4, 12}} {
			x, y, z := dims[0], dims[1], dims[2]
			n, w := x*y*z, typ.Size()
			base := make([]byte, n*w)
			for i := range base {
				base[i] = byte(r.Uint32())
			}
			prog := recipe.Program{recipe.Run(typ, 0, n), recipe.Transpose{Rows: x * y, Cols: z, N: n}}
			add := func(name string, n int) {
				c.add(fmt.Sprintf("%d by %d by %d elements of %d bytes, %s", x, y, z, w, name), codec.Recipe,
					append(prog.Append(nil), 0), c.follows(prog, base, n*w, 1), base, nil)
			}
			add("transposed", n)
			prog = append(prog, recipe.Transpose{Rows: x, Cols: y, Skip: n / 3, N: n - n/3 - n/4})
			add("reversed", n-n/3-n/4)
		}
	}
	_, base := weights(2, 600)
	prog := recipe.Program{recipe.Run(recipe.F32, 0, 600), recipe.Transpose{Rows: 20, Cols: 30, N: 600},
		recipe.Widen{}, recipe.Round{To: half.BF16}, recipe.Transpose{Rows: 30, Cols: 20, Skip: 1, N: 599}}
	c.add("transposed, rounded and transposed", codec.Recipe, append(prog.Append(nil), 0),
		c.follows(prog, base, 599*2, 1), base, nil)
}
