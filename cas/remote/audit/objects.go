package audit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/survey"
	"ckptfs/cas/segment"
)

// listing is what was listed of a class: ids, ascending, and sizes.
type listing struct {
	ids   []record.ID
	sizes []int64
}

func (l *listing) size(id record.ID) (int64, bool) {
	if l == nil {
		return 0, false
	}
	i, ok := slices.BinarySearchFunc(l.ids, id, func(a, b record.ID) int { return bytes.Compare(a[:], b[:]) })
	if !ok {
		return 0, false
	}
	return l.sizes[i], true
}

// list lists the objects that files need.
func (a *audit) list(ctx context.Context) error {
	for _, class := range []record.Class{record.ClassData, record.ClassMeta} {
		l := &listing{}
		a.listed[class] = l
		for info, err := range a.b.List(ctx, class.Prefix(), "") {
			if err != nil {
				return err
			}
			if _, id, ok := record.ParseObject(info.Key); ok {
				l.ids, l.sizes = append(l.ids, id), append(l.sizes, info.Size)
				a.rep.Objects++
				a.rep.Bytes += info.Size
			}
			if len(l.ids)%1000 == 0 {
				a.say("listing objects", a.rep.Objects)
			}
		}
	}
	return nil
}

// class is that of an object which was listed.
func (a *audit) class(id record.ID) (record.Class, bool) {
	for class, l := range a.listed {
		if _, ok := l.size(id); ok {
			return class, true
		}
	}
	return 0, false
}

// footer is what an object says that it has: records, ascending by offset.
type footer []segment.Record

// expected is how many records objects mostly have: the footer of so many is read by one request.
const expected = 1 << 10

// find is the number of the record that lies at a place, and whose hash begins so.
func (f footer) find(at record.Place, hash []byte) (int, bool) {
	i, ok := slices.BinarySearchFunc(f, at.Off, func(r segment.Record, off int64) int {
		return cmp.Compare(r.Off, off)
	})
	return i, ok && f[i].Stored == at.Stored && bytes.HasPrefix(f[i].Hash[:], hash)
}

// footer reads the footer of an object.
func (a *audit) footer(ctx context.Context, o record.Object) (footer, error) {
	if f, ok := a.footers.Get(o.ID); ok {
		return f, nil
	}
	f, err := a.reader.Footer(ctx, o, expected)
	if err == nil {
		a.footers.Add(o.ID, f)
	}
	return f, err
}

// readFooter reads the footer of an object that is in memory.
func readFooter(p []byte, id segment.ID) (f footer, err error) {
	r := bytes.NewReader(p)
	foot, err := segment.ReadFooter(r, int64(len(p)), id)
	if err == nil {
		err = foot.Each(r, func(rec *segment.Record) error {
			f = append(f, *rec)
			return nil
		})
	}
	if errors.Is(err, segment.ErrUnsealed) {
		err = fmt.Errorf("footer: %w: %w", err, cas.ErrCorrupt)
	}
	return f, err
}

// readData reads all objects that names need, and then finds out which names need those that are damaged.
func (a *audit) readData(ctx context.Context, m *survey.Mark) error {
	bad := map[record.ID]string{}
	for class, l := range a.listed {
		for i, id := range l.ids {
			if !m.Live.Has(id) {
				continue
			}
			o := record.Object{ID: id, Class: class, Len: l.sizes[i]}
			err := a.object(ctx, o)
			if err != nil && !damage(err) {
				return err
			}
			if err != nil {
				bad[id] = err.Error()
			}
			a.rep.ReadData += o.Len
			a.say("reading objects, MiB", a.rep.ReadData>>20)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return m.Each(func(path string, held []*record.Entry) error {
		for _, e := range names.Merge(held).Tips {
			if e.File == nil {
				continue
			}
			for _, id := range e.File.Deps {
				if what := bad[id]; what != "" {
					class, _ := a.class(id)
					a.problem(class.Key(id), Content, what, path)
				}
			}
		}
		return ctx.Err()
	})
}

// object reads one, record by record. The content of a record that is stored against others is not decoded:
// that its bytes are those that were put is what its checksums say.
func (a *audit) object(ctx context.Context, o record.Object) error {
	p, _, err := bucket.Read(ctx, a.b, o.Class.Key(o.ID), record.MaxObject, "")
	if err != nil {
		return err
	}
	id := segment.ID{Store: o.ID, Number: 1}
	foot, err := readFooter(p, id)
	if err != nil {
		return err
	}
	for i := range foot {
		want := &foot[i]
		if want.Off < 0 || want.Off > int64(len(p)) || want.End() > int64(len(p)) {
			return fmt.Errorf("record at %d of %d bytes: %w", want.Off, want.Stored, cas.ErrCorrupt)
		}
		if err := checkRecord(p[want.Off:], id, want); err != nil {
			return fmt.Errorf("record at %d, %s: %w", want.Off, want.Hash.Short(), err)
		}
	}
	return nil
}

func checkRecord(p []byte, id segment.ID, want *segment.Record) error {
	r, err := segment.ParseRecord(p, id, want.Off)
	if err != nil {
		return err
	}
	payload := p[segment.RecordHeaderSize:][:want.Stored]
	if r.Hash != want.Hash || r.Stored != want.Stored {
		return fmt.Errorf("its header says %s of %d bytes: %w", r.Hash.Short(), r.Stored, cas.ErrCorrupt)
	}
	if err := r.CheckPayload(payload); err != nil || codec.NeedsBase(r.Codec) {
		return err
	}
	raw, err := codec.Decode(nil, r.Codec, payload, int(r.Raw))
	if err != nil {
		return err
	}
	return cas.Check(raw, r.Hash)
}
