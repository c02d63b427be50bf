package ui

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/formats"
	"ckptfs/formats/numbers"
	"ckptfs/fs/control"
)

// tensorBody is the page of a tensor.
type tensorBody struct {
	File   string
	T      control.Tensor
	Owner  *control.Model
	Shares []sharer
	Parts  []link // the tensors that it has parts of, where it is made of several
	More   int
	Values string // the part with what its elements are
}

// tensorURL is the page of a tensor. A name that is too long for a URL is named by its hash.
func tensorURL(file, name string) string { return withQuery("/tensor", tensorQuery(file, name)...) }

func tensorQuery(file, name string) []string {
	if len(name) > mostTitle {
		return []string{"file", file, "sha256", hashOf(name)}
	}
	return []string{"file", file, "name", name}
}

func hashOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// tensorOf is the tensor that a URL asks for, and the model that first stored it, if that is known.
func (s *server) tensorOf(ctx context.Context, q url.Values) (*control.Tensor, *control.Model, error) {
	file, name := q.Get("file"), q.Get("name")
	var long *control.Tensor
	if h := q.Get("sha256"); h != "" {
		_, err := s.c.Show(ctx, file, func(some []control.Tensor) error {
			for i := range some {
				if long == nil && len(some[i].Name) > mostTitle && hashOf(some[i].Name) == h {
					one := some[i]
					long = &one
				}
			}
			return nil
		})
		if err != nil || long != nil {
			return long, nil, err
		}
		name = h
	} else {
		o, err := s.c.Outline(ctx, control.OutlineOptions{Path: file, Prefix: name, Exact: true, Most: 1})
		if err != nil {
			return nil, nil, err
		}
		if len(o.Listed) > 0 {
			return &o.Listed[0].Tensor, o.Owner(&o.Listed[0]), nil
		}
	}
	return nil, nil, notThere("%s: no tensor called %s", shown(file), shown(name))
}

func (s *server) tensor(ctx context.Context, r *http.Request) (*page, error) {
	q := r.URL.Query()
	file := q.Get("file")
	t, owner, err := s.tensorOf(ctx, q)
	if err != nil {
		return nil, err
	}
	b := &tensorBody{File: file, T: *t, Owner: owner}
	name := b.T.Name
	b.Values = withQuery("/part/values", tensorQuery(file, name)...)
	for _, p := range b.T.SharedWith[:min(len(b.T.SharedWith), 20)] {
		b.Shares = append(b.Shares, sharer{Path: p, URL: withQuery("/path", "path", p)})
	}
	b.More = max(b.T.Shared, len(b.T.SharedWith)) - len(b.Shares)
	if as := b.T.StoredAs; as != nil && len(as.Bases) > 1 && as.Op != "combined" {
		for i := range as.Bases {
			if as.Bases[i].Path != "" {
				b.Parts = append(b.Parts, baseLink(&b.T, &as.Bases[i]))
			}
		}
	}
	full, commands := s.full(file), []string(nil)
	if len(name) <= mostTitle { // else it is too long for a command line
		commands = []string{"ckptfs cat-tensor " + full + " " + text.Word(name) + " --npy > tensor.npy",
			"ckptfs find --like " + text.Word(s.at.Full(file)+":"+name)}
	}
	return &page{Name: "tensor", Title: shown(name), Here: "files", Body: b, Data: b.T,
		Crumbs: append(crumbs(file), link{shown(name), r.URL.RequestURI()}), Commands: commands}, nil
}

// valuesBody is what the elements of a tensor are.
type valuesBody struct {
	Stats *control.TensorStats
	Std   float64
	Chart chart
	Some  bool // only the first of them were read
	Read  int64
}

// mostRead is how many bytes of a tensor are read for its histogram.
const mostRead = 1 << 30

// bins of a histogram.
const bins = 80

// Finite reports whether any element is a finite number.
func (b *valuesBody) Finite() bool { return !math.IsNaN(float64(b.Stats.Min)) }

func (s *server) valuesPart(ctx context.Context, r *http.Request) (*page, error) {
	q := r.URL.Query()
	file := q.Get("file")
	t, _, err := s.tensorOf(ctx, q)
	if err != nil {
		return nil, err
	}
	name, dtype := t.Name, formats.DType(t.DType)
	if !numbers.Known(dtype) || dtype.Bits()%8 != 0 {
		return nil, control.Invalid("elements of type %s are no numbers to this program", shown(string(dtype)))
	}
	d, err := s.c.Tensor(ctx, file, name, false)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	h, err := readValues(d, dtype)
	if err != nil {
		return nil, err
	}
	if h.coarse() {
		again, err := s.c.Tensor(ctx, file, name, false)
		if err != nil {
			return nil, err
		}
		defer again.Close()
		if err := h.count(again, dtype); err != nil {
			return nil, err
		}
	}
	b := &valuesBody{Stats: h.stats(), Std: h.std(), Chart: h.chart(), Some: d.Size > mostRead, Read: h.read}
	return &page{Name: "values", Body: b, Data: b.Stats}, nil
}

// values counts elements by what they are.
//
// A count is kept for each of the 65,536 values that the upper half of a float32 can have: a histogram is
// made from these, within 0.8 % of where its elements are, and the tensor is read once. Where all elements
// are as close together as that, or some beyond a float32, it is read again, and they are counted by bins.
type values struct {
	sum    *numbers.Summary
	counts [1 << 16]int64
	beyond int64     // finite elements that no float32 holds
	bins   []float64 // that were counted by count
	first  float64   // finite element; sums are of differences from it, which keep their digits
	sq     float64   // of squares, of finite elements
	total  float64
	read   int64
}

func readValues(r io.Reader, d formats.DType) (*values, error) {
	v := &values{sum: numbers.NewSummary()}
	some := false
	var err error
	v.read, err = elements(r, d, func(p []byte) { v.sum.Add(d, p) }, func(x float64) {
		if !some {
			v.first, some = x, true
		}
		off := x - v.first
		v.sq, v.total = v.sq+off*off, v.total+off
		if f := float32(x); math.IsInf(float64(f), 0) {
			v.beyond++
		} else {
			v.counts[math.Float32bits(f)>>16]++
		}
	})
	return v, err
}

// elements reads the first mostRead bytes of a tensor: pieces sees them, and one each finite element.
func elements(r io.Reader, d formats.DType, pieces func(p []byte), one func(x float64)) (int64, error) {
	read := int64(0)
	w := int(d.Bits() / 8)
	buf := make([]byte, (1<<20)/w*w)
	for read < mostRead {
		n, err := io.ReadFull(r, buf)
		n -= n % w
		read += int64(n)
		pieces(buf[:n])
		for i := 0; i < n; i += w {
			if x := numbers.Value(d, buf[i:i+w]); !math.IsNaN(x) && !math.IsInf(x, 0) {
				one(x)
			}
		}
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return read, err
		}
	}
	return read, nil
}

// span is where the bins begin, and how wide each is. The difference of two elements may be infinite.
func (v *values) span() (low, width float64) {
	low, high := v.sum.Min, v.sum.Max
	if v.sum.Finite() == 0 {
		low, high = 0, 0
	}
	if high <= low {
		low, high = low-0.5, low+0.5
	}
	return low, high/bins - low/bins
}

// coarse reports whether a bin is narrower than what counts tells apart.
func (v *values) coarse() bool {
	_, width := v.span()
	return v.sum.Max > v.sum.Min && (v.beyond > 0 || width < max(-v.sum.Min, v.sum.Max)/128)
}

// count counts elements by bins.
func (v *values) count(r io.Reader, d formats.DType) error {
	low, width := v.span()
	v.bins = make([]float64, bins)
	_, err := elements(r, d, func([]byte) {}, func(x float64) {
		v.bins[max(0, min(int((x/2-low/2)/(width/2)), bins-1))]++
	})
	return err
}

func (v *values) stats() *control.TensorStats {
	s := v.sum
	out := &control.TensorStats{Count: s.Count, NaN: s.NaN, Inf: s.Inf, Zero: s.Zero}
	if s.Finite() > 0 {
		out.Min, out.Max, out.Mean = control.Number(s.Min), control.Number(s.Max), control.Number(s.Mean())
	} else {
		nan := control.Number(math.NaN())
		out.Min, out.Max, out.Mean = nan, nan, nan
	}
	return out
}

// std is the standard deviation of the finite elements.
func (v *values) std() float64 {
	n := float64(v.sum.Finite())
	if n == 0 {
		return math.NaN()
	}
	off := v.total / n
	return math.Sqrt(max(v.sq/n-off*off, 0))
}

// histogram has the counts of bins of equal width, from low on.
type histogram struct {
	Low    number  `json:"low"`
	Width  number  `json:"width"`
	Counts []int64 `json:"counts"`
}

func (v *values) chart() chart {
	h := histogram{Counts: make([]int64, bins)}
	low, width := v.span()
	h.Low, h.Width = number(low), number(width)
	if v.bins != nil {
		return h.of(v.bins)
	}
	of, high := make([]float64, bins), v.sum.Max
	if high <= v.sum.Min || v.sum.Finite() == 0 { // all are one number
		of[bins/2] = float64(v.sum.Finite())
		return h.of(of)
	}
	for i, n := range v.counts {
		if n == 0 {
			continue
		}
		// The values that share these bits lie between a and b: they are taken to be spread over that.
		a := float64(math.Float32frombits(uint32(i) << 16))
		b := float64(math.Float32frombits(uint32(i)<<16 | 1<<16 - 1))
		a, b = (max(min(a, b), low)-low)/width, (min(max(a, b), high)-low)/width
		from, to := max(0, min(int(a), bins-1)), max(0, min(int(b), bins-1))
		for k := from; k <= to; k++ {
			share := 1.0
			if from < to {
				share = (min(b, float64(k+1)) - max(a, float64(k))) / (b - a)
			}
			of[k] += share * float64(n)
		}
	}
	return h.of(of)
}

func (h histogram) of(counts []float64) chart {
	for k, n := range counts {
		h.Counts[k] = int64(math.Round(n))
	}
	return chart{"histogram", "How many elements have which value", h}
}
