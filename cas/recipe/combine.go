package recipe

import (
	"math"

	"ckptfs/cas/half"
	"ckptfs/cas/quant"
)

// Form is how vectors are combined. The numbers are part of the format.
type Form byte

// The forms, of vectors x and coefficients c. Each product and sum is rounded to single precision, and the
// result to the type; of those whose name ends in Each, what single precision gives is rounded to the type
// after each of them, as half-precision arithmetic does.
const (
	Sum      Form = 0 // ((c1 x1 + c2 x2) + c3 x3) + …
	SumEach  Form = 1
	Mean     Form = 2 // ((x1 + x2) + …) / c1
	MeanEach Form = 3
	Lerp     Form = 4 // x1 + c2 (x2 - x1)
	LerpEach Form = 5
	Task     Form = 6 // x1 + c2 (x2 - x3)
	TaskEach Form = 7

	// Averages that go on from v = x1, with one further vector x at a time, whose coefficient is c. What has
	// become of v is rounded to the type each time. An fma multiplies and adds, and rounds once.
	Average      Form = 8  // v = fma(c, x, c1 v)
	AverageEach  Form = 9  // the same, of c1 v rounded to the type
	Move         Form = 10 // v = fma(c, x - v, v)
	AverageApart Form = 11 // v = c1 v + c x
	MoveApart    Form = 12 // v = v + c (x - v)

	// Several task vectors, from x1. Of TasksEach their sum is rounded once, as programs sum along an axis.
	Tasks     Form = 14 // x1 + ((c2 (x2 - x1) + c3 (x3 - x1)) + …)
	TasksEach Form = 15

	// A mean of several, and x1 (model stock), in single precision or with each operation rounded.
	Stock     Form = 16 // c2 ((x2 + x3) + …) / n + c1 x1, n of them
	StockEach Form = 17

	forms = 18
)

// Known reports whether there is such a form.
func (f Form) Known() bool { return f < forms && f != 13 }

// Goes reports whether the form is of averages: what it makes may be the first vector of the same again.
func (f Form) Goes() bool { return f >= Average && f <= MoveApart }

// MaxVectors is how many vectors are combined at most.
const MaxVectors = 8

// Combine makes one vector of several of equal length, which lie one behind the other.
type Combine struct {
	Form Form
	C    []float32 // one for each vector, whether it is used or not
	To   Type      // F32, BF16 or F16
}

// combiner is a machine's memory for that.
type combiner struct {
	planes [4][]byte
	out    []byte
}

func (Combine) id() byte { return opCombine }

func (o Combine) append(dst []byte) []byte {
	dst = append(dst, byte(o.Form), byte(o.To), byte(len(o.C)))
	for _, c := range o.C {
		dst = le.AppendUint32(dst, math.Float32bits(c))
	}
	return dst
}

func (r *fields) combine() (Op, error) {
	o := Combine{Form: Form(r.byte()), To: Type(r.byte())}
	n := int(r.byte())
	if r.bad || n < 1 || n > MaxVectors || len(r.p) < 4*n {
		r.bad = true
		return nil, corrupt("%d vectors are combined, or the program is cut short", n)
	}
	if !o.Form.Known() || o.To < F32 || o.To > F16 {
		return nil, newer("form %d of a combination, type %d", o.Form, o.To)
	}
	if want := o.Form.vectors(); want > 0 && n != want || o.Form >= Stock && n < 2 {
		return nil, corrupt("%d vectors in a form of %d", n, want)
	}
	for range n {
		o.C = append(o.C, math.Float32frombits(le.Uint32(r.p)))
		r.p = r.p[4:]
	}
	return o, nil
}

// vectors is how many a form has; 0: any number.
func (f Form) vectors() int {
	switch f {
	case Lerp, LerpEach:
		return 2
	case Task, TaskEach:
		return 3
	}
	return 0
}

// Combined sets dst to what o makes of x, of as many vectors as it has coefficients.
func (o *Combine) Combined(dst, x []float32) {
	n := len(dst)
	at := func(k int) []float32 { return x[k*n:][:n] }
	to := rounder(o.To)
	if o.Form.Goes() {
		o.average(dst, at, to)
		return
	}
	each := rounder(F32)
	if o.Form&1 == 1 {
		each = to
	}
	total := func(first int) { // of the vectors from the first one on
		copy(dst, at(first))
		for k := first + 1; k < len(o.C); k++ {
			for i, v := range at(k) {
				dst[i] = each(dst[i] + v)
			}
		}
	}
	switch o.Form &^ 1 {
	case Sum:
		x, c := at(0), o.C[0]
		for i := range dst {
			dst[i] = each(float32(c * x[i]))
		}
		for k := 1; k < len(o.C); k++ {
			x, c := at(k), o.C[k]
			for i := range dst {
				dst[i] = each(dst[i] + each(float32(c*x[i])))
			}
		}
	case Mean:
		total(0)
		for i := range dst {
			dst[i] = each(dst[i] / o.C[0])
		}
	case Lerp, Task:
		a, b, from, c := at(0), at(1), at(0), o.C[1]
		if o.Form&^1 == Task {
			from = at(2)
		}
		for i := range dst {
			dst[i] = each(a[i] + each(float32(c*each(b[i]-from[i]))))
		}
	case Tasks:
		clear(dst)
		from := at(0)
		for k := 1; k < len(o.C); k++ {
			c := o.C[k]
			for i, v := range at(k) {
				dst[i] += each(float32(c * each(v-from[i])))
			}
		}
		for i, v := range from {
			dst[i] = each(v + each(dst[i]))
		}
	case Stock:
		x, n := at(0), float32(len(o.C)-1)
		total(1)
		for i, v := range dst {
			dst[i] = each(each(float32(o.C[1]*each(v/n))) + each(float32(o.C[0]*x[i])))
		}
	}
	for i, x := range dst {
		if x != x {
			x = math.Float32frombits(quiet) // processors differ in which one it is
		}
		dst[i] = to(x)
	}
}

// average is Combined for averages.
func (o *Combine) average(dst []float32, at func(k int) []float32, to func(float32) float32) {
	copy(dst, at(0))
	a := o.C[0]
	for k := 1; k < len(o.C); k++ {
		c := o.C[k]
		for i, x := range at(k) {
			v := dst[i]
			switch o.Form {
			case Average:
				v = quant.FMA(c, x, float32(a*v))
			case AverageEach:
				v = quant.FMA(c, x, to(float32(a*v)))
			case Move:
				v = quant.FMA(c, float32(x-v), v)
			case AverageApart:
				v = float32(a*v) + float32(c*x)
			case MoveApart:
				v += float32(c * float32(x-v))
			}
			if v != v {
				v = math.Float32frombits(quiet)
			}
			dst[i] = to(v)
		}
	}
}

// quiet is what is no number, wherever it comes from.
const quiet = 0x7fc00000

// Round is the number of a type that is nearest to x: F32, BF16 or F16.
func (t Type) Round(x float32) float32 { return rounder(t)(x) }

// rounder rounds to a type, and back.
func rounder(t Type) func(float32) float32 {
	switch t {
	case BF16:
		return func(x float32) float32 { return half.FromBF16(half.ToBF16(math.Float32bits(x))) }
	case F16:
		return func(x float32) float32 { return half.FromF16(half.ToF16(math.Float32bits(x))) }
	}
	return func(x float32) float32 { return x }
}

func (o Combine) run(m *machine) error {
	if err := m.widened(); err != nil {
		return err
	}
	n := len(m.numbers) / len(o.C)
	if m.is != wide || n*len(o.C) != len(m.numbers) {
		return corrupt("%d numbers are no %d vectors", len(m.numbers), len(o.C))
	}
	w := o.To.Size()
	if n*w != m.rawLen {
		return corrupt("%d numbers in a chunk of %d bytes", n, m.rawLen)
	}
	sum := make([]float32, n)
	o.Combined(sum, m.numbers)
	if cap(m.combiner.out) < n*w {
		m.combiner.out = make([]byte, n*w)
	}
	out := m.combiner.out[:n*w]
	narrow(out, sum, o.To)
	if m.encodes {
		m.differences(out, w)
	} else if err := m.correct(out, w); err != nil {
		return err
	}
	m.is, m.numbers, m.value, m.typ = narrower, nil, out, o.To
	return nil
}

// narrow sets dst to the numbers of src, which are such of a type.
func narrow(dst []byte, src []float32, t Type) {
	switch t {
	case F32:
		for i, x := range src {
			le.PutUint32(dst[4*i:], math.Float32bits(x))
		}
	case BF16:
		round(dst, src, half.BF16)
	case F16:
		round(dst, src, half.F16)
	}
}

// ordinal is the place of a float of w bytes in the order of all (package half), and unordinal the float
// there.
func ordinal(x uint32, w int) uint32 {
	if w == 2 {
		return uint32(half.Ordinal16(uint16(x)))
	}
	return half.Ordinal32(x)
}

func unordinal(o uint32, w int) uint32 {
	if w == 2 {
		return uint32(half.FromOrdinal16(uint16(o)))
	}
	return half.FromOrdinal32(o)
}

func element(p []byte, i, w int) uint32 {
	if w == 2 {
		return uint32(le.Uint16(p[2*i:]))
	}
	return le.Uint32(p[4*i:])
}

// differences writes by how many places in that order what is wanted differs from what was computed: a stream
// for each byte of them, zigzag-coded, the lowest first; all are empty where nothing differs.
func (m *machine) differences(got []byte, w int) {
	n, any := len(got)/w, false
	planes := &m.combiner.planes
	for k := range planes[:w] {
		planes[k] = planes[k][:0]
	}
	for i := range n {
		d := ordinal(element(m.want, i, w), w) - ordinal(element(got, i, w), w)
		s := int32(d<<(32-8*w)) >> (32 - 8*w)
		u := uint32(s<<1) ^ uint32(s>>31)
		any = any || u != 0
		for k := range planes[:w] {
			planes[k] = append(planes[k], byte(u>>(8*k)))
		}
	}
	for k := range planes[:w] {
		if !any {
			planes[k] = planes[k][:0]
		}
		m.write(planes[k])
	}
}

// correct undoes differences.
func (m *machine) correct(p []byte, w int) error {
	n := len(p) / w
	planes := &m.combiner.planes
	var err error
	for k := range planes[:w] {
		if planes[k], err = m.read(planes[k], n); err != nil {
			return err
		}
		if len(planes[k]) != len(planes[0]) || len(planes[k]) != 0 && len(planes[k]) != n {
			return corrupt("%d differences, want %d", len(planes[k]), n)
		}
	}
	if len(planes[0]) == 0 {
		return nil
	}
	for i := range n {
		var u uint32
		for k := range planes[:w] {
			u |= uint32(planes[k][i]) << (8 * k)
		}
		d := uint32(int32(u>>1) ^ -int32(u&1))
		x := unordinal(ordinal(element(p, i, w), w)+d, w)
		if w == 2 {
			le.PutUint16(p[2*i:], uint16(x))
		} else {
			le.PutUint32(p[4*i:], x)
		}
	}
	return nil
}
