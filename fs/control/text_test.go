package control

import (
	"encoding/json"
	"testing"
)

func TestIndented(t *testing.T) {
	for _, v := range []any{
		nil, 1, "", "x", []int{}, map[string]int{}, []any{[]int{}, []any{map[string]any{}}},
		map[string]any{"a": []any{1, -2.5e-9, true, nil, `"\{[,:]}é<>&` + "\x00\n\\"},
			`b"\\`: map[string]any{"": [][2]string{{"x", "y"}, {`\"`, `\`}}}},
		&MatchAnswer{GraphKind: "explicit",
			Match: &Match{Pairs: [][2]string{{"a", "b"}}, Tensors: []TransferTensor{}}},
	} {
		p, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := json.MarshalIndent(v, "", "  ")
		if got := indented(p); string(got) != string(want) {
			t.Errorf("%s:\n%s\nwant\n%s", p, got, want)
		}
	}
}
