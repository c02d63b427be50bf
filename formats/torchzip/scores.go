package torchzip

import (
	"fmt"
	"io"

	"ckptfs/formats"
	"ckptfs/formats/numbers"
	"ckptfs/formats/pickle"
)

// maxScores bounds the callbacks of one checkpoint.
const maxScores = 4096

// Scores reads what a checkpoint of Lightning says of how good it is: for each of its ModelCheckpoint
// callbacks the metric that it watches, and its value when the checkpoint was written. data.pkl is
//
//	{"callbacks": {"ModelCheckpoint{…}": {"monitor": "val_loss", "current_score": tensor(0.31), …}, …}, …}
//
// A callback that watches nothing, or whose score is no scalar, has none; of two that watch one metric the
// last counts. A file that Open refuses is formats.ErrNotFormat; one without callbacks has no scores.
func Scores(r io.ReaderAt, size int64) (map[string]float64, error) {
	o, err := Open(r, size)
	if err != nil {
		return nil, err
	}
	callbacks, ok := member(o.Root, "callbacks")
	if !ok {
		return nil, nil
	}
	out := map[string]float64{}
	for i := range min(callbacks.NumPairs(), maxScores) {
		_, state := callbacks.Pair(i)
		monitor, ok := member(state, "monitor")
		if !ok || monitor.Kind() != pickle.Text {
			continue
		}
		score, ok := member(state, "current_score")
		if !ok {
			continue
		}
		v, ok, err := scalar(r, o, score)
		if err != nil {
			return nil, fmt.Errorf("%.64q: %w", monitor.Text(), err)
		}
		if ok {
			out[string(monitor.Text())] = v
		}
	}
	return out, nil
}

// member is the value of a key of a dict, the last one as in Python.
func member(dict pickle.Value, key string) (v pickle.Value, ok bool) {
	if dict.Kind() != pickle.Dict {
		return v, false
	}
	for i := range dict.NumPairs() {
		if k, val := dict.Pair(i); k.Kind() == pickle.Text && string(k.Text()) == key {
			v, ok = val, true
		}
	}
	return v, ok
}

// scalar reads a number, or a tensor of one.
func scalar(r io.ReaderAt, o *Object, v pickle.Value) (float64, bool, error) {
	if f, ok := v.Float(); ok {
		return f, true, nil
	}
	if n, ok := v.Int(); ok {
		return float64(n), true, nil
	}
	t, ok := o.Tensor(v)
	if !ok || t.NumElements() != 1 || t.Region < 0 || !numbers.Known(t.DType) {
		return 0, false, nil
	}
	p := make([]byte, t.DType.Bits()/8)
	if err := formats.ReadFull(r, p, o.Layout.Regions[t.Region].Off+t.Offset); err != nil {
		return 0, false, err
	}
	return numbers.Value(t.DType, p), true, nil
}
