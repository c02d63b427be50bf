package safetensors

import (
	"bytes"
	"errors"
	"fmt"
)

// The fields of an entry, in the order of its array form.
var fields = [...]string{"dtype", "shape", "data_offsets"}

// entry is one tensor's value. The shape is valid until the next one is read.
type entry struct {
	dtype      uint8 // in dtypes
	shape      []uint64
	start, end uint64
}

const (
	leastEntry = len(`"":{"dtype":"U8","shape":[],"data_offsets":[0,0]},`)
	usualName  = 64
)

// parseHeader returns the tensors of a header, which must be UTF-8, by rules 2 to 4; at most so many. A name
// that occurs again keeps its place and takes the last value.
func parseHeader(header []byte, most int) (*table, error) {
	d := decoder{p: header}
	n := min(bytes.Count(header, []byte(fields[2])), most) // no growing, which leaves much behind
	t := &table{rows: make([]row, 0, n), dims: make([]int64, 0, n)}
	t.names.Grow(min(n*usualName, max(0, len(header)-n*leastEntry)))
	metadata := false
	err := d.object(func(key []byte) error {
		if string(key) == metadataKey {
			if metadata {
				return errors.New("duplicate field " + metadataKey)
			}
			metadata = true
			return d.metadata()
		}
		if len(t.rows) == most {
			return tooMany(most)
		}
		name := d.keep(key)
		e, err := d.entry()
		if err != nil {
			return fmt.Errorf("tensor %.64q: %w", name, err)
		}
		t.add(name, &e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if d.space(); d.pos != len(d.p) {
		return nil, d.errorf("trailing characters")
	}
	t.unite()
	return t, nil
}

func tooMany(most int) error {
	if most < maxTensors {
		return fmt.Errorf("more than %d tensors, for which --memory has room", most)
	}
	return fmt.Errorf("more than %d tensors", most)
}

// metadata reads the value of __metadata__.
func (d *decoder) metadata() error {
	if d.peek() == 'n' {
		return d.literal("null")
	}
	return d.object(func([]byte) error {
		_, err := d.string()
		return err
	})
}

// entry reads a tensor's value, an object or an array.
func (d *decoder) entry() (entry, error) {
	var e entry
	var seen [len(fields)]bool
	read := func(field int) error {
		seen[field] = true
		switch field {
		case 0:
			return d.dtype(&e)
		case 1:
			return d.shape(&e)
		}
		return d.offsets(&e)
	}
	if d.peek() == '[' {
		n := 0
		err := d.array(func() error {
			if n++; n > len(fields) {
				return fmt.Errorf("array of more than %d", len(fields))
			}
			return read(n - 1)
		})
		if err == nil && n < len(fields) {
			err = fmt.Errorf("array of %d", n)
		}
		return e, err
	}
	err := d.object(func(key []byte) error {
		for i, f := range fields {
			if string(key) == f {
				if seen[i] {
					return errors.New("duplicate field " + f)
				}
				return read(i)
			}
		}
		return d.skip()
	})
	for i, f := range fields {
		if err == nil && !seen[i] {
			err = errors.New("missing field " + f)
		}
	}
	return e, err
}

// dtype reads a type's code, or the object {code: null}, which serde takes for the same.
func (d *decoder) dtype(e *entry) error {
	set := func(code []byte) error {
		for i, t := range dtypes {
			if string(code) == string(t) {
				e.dtype = uint8(i)
				return nil
			}
		}
		return fmt.Errorf("unknown dtype %.16q", code)
	}
	if d.peek() != '{' {
		code, err := d.string()
		if err != nil {
			return err
		}
		return set(code)
	}
	n := 0
	err := d.object(func(key []byte) error {
		if err := set(key); err != nil {
			return err
		}
		n++
		return d.literal("null")
	})
	if err == nil && n != 1 {
		err = fmt.Errorf("dtype of %d variants", n)
	}
	return err
}

func (d *decoder) shape(e *entry) error {
	d.shaped = d.shaped[:0]
	err := d.array(func() error {
		v, err := d.uint64()
		if d.dims++; err == nil && d.dims > maxDims {
			err = fmt.Errorf("more than %d dimensions in all", maxDims)
		}
		d.shaped = append(d.shaped, v)
		return err
	})
	e.shape = d.shaped
	return err
}

func (d *decoder) offsets(e *entry) error {
	n := 0
	err := d.array(func() error {
		v, err := d.uint64()
		switch n++; n {
		case 1:
			e.start = v
		case 2:
			e.end = v
		default:
			return errors.New("more than two data_offsets")
		}
		return err
	})
	if err == nil && n != 2 {
		err = fmt.Errorf("%d data_offsets, want two", n)
	}
	return err
}
