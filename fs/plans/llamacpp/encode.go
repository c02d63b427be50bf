package llamacpp

import "strings"

// bpe encodes as a byte-level BPE does.
type bpe struct {
	ids          map[string]int64
	ranks        map[string]int // of merges that may be needed: two tokens with a space between them
	ignoreMerges bool           // a part that is a token is that token
}

// levelBytes are the characters that stand for bytes, as GPT-2 has them.
var levelBytes = func() (out [256]string) {
	next := rune(256)
	for i := range out {
		r := rune(i)
		if r < '!' || r > '~' && r < 0xa1 || r == 0xad {
			r, next = next, next+1
		}
		out[i] = string(r)
	}
	return out
}()

// level is a text with a character for each byte.
func level(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteString(levelBytes[s[i]])
	}
	return b.String()
}

// take takes the merges, each two tokens with a space between them, that these parts may need.
func (b *bpe) take(merges, parts []string) {
	within := make(map[string]bool)
	for _, s := range parts {
		for from := range len(s) {
			for to := from + 1; to <= len(s); to++ {
				within[level(s[from:to])] = true
			}
		}
	}
	b.ranks = make(map[string]int)
	for rank, m := range merges {
		if left, right, ok := strings.Cut(m, " "); ok && within[left] && within[right] {
			b.ranks[m] = rank
		}
	}
}

// encode is what the parts become: always the merge of the lowest rank first, of equals the leftmost.
func (b *bpe) encode(parts []string) (out []int64, err error) {
	for _, s := range parts {
		if id, ok := b.ids[level(s)]; ok && b.ignoreMerges {
			out = append(out, id)
			continue
		}
		var tokens []string
		for i := range len(s) {
			tokens = append(tokens, levelBytes[s[i]])
		}
		for {
			best, at := -1, 0
			for i := 0; i+1 < len(tokens); i++ {
				if rank, ok := b.ranks[tokens[i]+" "+tokens[i+1]]; ok && (best < 0 || rank < best) {
					best, at = rank, i
				}
			}
			if best < 0 {
				break
			}
			tokens[at] += tokens[at+1]
			tokens = append(tokens[:at+1], tokens[at+2:]...)
		}
		for _, t := range tokens {
			id, ok := b.ids[t]
			if !ok {
				return nil, refuse(fileTokenizer, "it has no token for the byte %q", t)
			}
			out = append(out, id)
		}
	}
	return out, nil
}
