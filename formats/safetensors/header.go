package safetensors

import (
	"bytes"
	"errors"
	"fmt"
)

// The fields of an entry, in the order of its array form.
var fields = [...]string{"dtype", "shape", "data_offsets"}

// parseHeader returns the tensors of a header, which must be UTF-8, by rules 2 to 4. A name that occurs again
// keeps its place and takes the last value.
func parseHeader(header []byte) ([]entry, error) {
	d := decoder{p: header}
	most := min(bytes.Count(header, []byte(fields[2])), maxTensors) // no growing, which leaves much behind
	entries := make([]entry, 0, most)
	index := make(map[string]int, most)
	metadata := false
	err := d.object(func(key []byte) error {
		if string(key) == metadataKey {
			if metadata {
				return errors.New("duplicate field " + metadataKey)
			}
			metadata = true
			return d.metadata()
		}
		name := string(key)
		e, err := d.entry()
		if err != nil {
			return fmt.Errorf("tensor %.64q: %w", name, err)
		}
		e.name = name
		if i, ok := index[name]; ok {
			entries[i] = e
			return nil
		}
		if len(entries) >= maxTensors {
			return fmt.Errorf("more than %d tensors", maxTensors)
		}
		index[name] = len(entries)
		entries = append(entries, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if d.space(); d.pos != len(d.p) {
		return nil, d.errorf("trailing characters")
	}
	return entries, nil
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
		for _, t := range dtypes {
			if string(code) == string(t) {
				e.dtype = t
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
	e.shape = d.shaped[:0]
	err := d.array(func() error {
		v, err := d.uint64()
		if d.dims++; err == nil && d.dims > maxDims {
			err = fmt.Errorf("more than %d dimensions in all", maxDims)
		}
		e.shape = append(e.shape, v)
		return err
	})
	if d.shaped != nil {
		d.shaped = e.shape
	}
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
