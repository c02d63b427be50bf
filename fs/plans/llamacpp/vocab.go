package llamacpp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ckptfs/formats/pyjson"
	"ckptfs/formats/sentencepiece"
)

// Types of tokens, as llama.cpp has them.
const (
	tokenNormal int32 = iota + 1
	tokenUnknown
	tokenControl
	tokenUser
	tokenUnused
	tokenByte
)

// maxVocab bounds the vocabulary that a config states.
const maxVocab = 1 << 22

// vocabulary sets the pairs tokenizer.*.
func (c *converter) vocabulary() error {
	if c.vocab > maxVocab {
		return refuse(fileConfig, "vocab_size is more than %d", maxVocab)
	}
	if c.has(fileTekken) && !c.has(fileTokenizer) {
		return refuse(fileTekken, "a tokenizer of Mistral's own is not converted here")
	}
	config, err := c.json(fileTokenizing)
	if err != nil {
		return err
	}
	if c.arch == "llama" {
		if v, _ := config.Get("add_prefix_space"); v != nil {
			prefix, ok := v.(bool)
			if !ok {
				return refuse(fileTokenizing, "add_prefix_space is no truth value")
			}
			c.set("tokenizer.ggml.add_space_prefix", prefix)
		}
		if v, _ := config.Get("tokenizer_class"); v == "HybridDNATokenizer" {
			return refuse(fileTokenizing, "a HybridDNATokenizer is not converted here")
		}
	}
	switch {
	case !c.has(filePieces):
		err = c.bytePairs()
	case strings.HasSuffix(c.arch, "moe"):
		return refuse(filePieces, "the converter does not read it, and it is not known what transformers makes of it")
	default:
		err = c.pieces(config)
	}
	if err != nil || c.arch != "llama" {
		return err
	}
	switch c.vocab {
	case 32016: // CodeLlama's
		types := []string{"prefix", "suffix", "middle", "eot"}
		s := special{types: types}
		if err := c.load(&s); err != nil {
			return err
		}
		for i, typ := range types {
			if err := s.set(typ, int64(32007+i)); err != nil {
				return err
			}
		}
		return c.add(&s)
	case 49152: // Granite's
		c.set("tokenizer.ggml.add_bos_token", false)
	}
	return nil
}

// pieces sets the pairs of a vocabulary of SentencePiece.
func (c *converter) pieces(config *pyjson.Object) error {
	pieces, err := sentencepiece.Parse(c.f.Files[filePieces])
	if err != nil {
		return refuse(filePieces, "%v", err)
	}
	tokens := make([]string, c.vocab)
	scores := make([]float32, c.vocab)
	types := make([]int32, c.vocab)
	for i := range tokens {
		if i >= len(pieces) {
			tokens[i], scores[i], types[i] = fmt.Sprintf("[PAD%d]", i), -10000, tokenUnused
			continue
		}
		p := &pieces[i]
		tokens[i], scores[i] = p.Text, p.Score
		if types[i] = int32(p.Type); p.Type == sentencepiece.UserDefined {
			types[i] = tokenNormal
		}
	}
	added, err := c.json(fileAdded)
	if err != nil {
		return err
	}
	for i := range added.Len() {
		token, v := added.Key(i)
		n, _ := v.(pyjson.Number)
		id, ok := n.Int()
		if !ok || id < 0 {
			return refuse(fileAdded, "the id of %.64q is none", token)
		}
		if id < c.vocab {
			tokens[id], scores[id], types[id] = token, -1000, tokenUser
		}
	}
	decoder, there := config.Get("added_tokens_decoder")
	all, ok := decoder.(*pyjson.Object)
	if there && !ok {
		return refuse(fileTokenizing, "added_tokens_decoder is no object")
	}
	for i := range all.Len() {
		key, v := all.Key(i)
		id, err := strconv.ParseInt(key, 10, 64)
		o, _ := v.(*pyjson.Object)
		content, _ := o.Get("content")
		token, ok := content.(string)
		if err != nil || id < 0 || strconv.FormatInt(id, 10) != key || !ok {
			return refuse(fileTokenizing, "token %.64q of added_tokens_decoder has no number or no content", key)
		}
		if id >= c.vocab {
			continue
		}
		is, err := truth(fileTokenizing, o, "special")
		if err != nil {
			return err
		}
		scores[id], types[id] = -1000, tokenControl
		if !is && !looksSpecial(token) {
			token, types[id] = strings.ReplaceAll(token, "\u2581", " "), tokenUser
		}
		tokens[id] = token
	}
	c.set("tokenizer.ggml.model", "llama")
	c.set("tokenizer.ggml.pre", "default")
	c.set("tokenizer.ggml.tokens", tokens)
	c.set("tokenizer.ggml.scores", scores)
	c.set("tokenizer.ggml.token_type", types)
	s := special{types: specialTypes, vocab: c.vocab}
	if err := c.load(&s); err != nil {
		return err
	}
	return c.add(&s)
}

// truth is a truth value that an object has; false where it has none.
func truth(file string, o *pyjson.Object, key string) (bool, error) {
	v, _ := o.Get(key)
	b, ok := v.(bool)
	if v != nil && !ok {
		return false, refuse(file, "%s is no truth value", key)
	}
	return b, nil
}

// looksSpecial reports whether the converter takes a token for special by its looks.
func looksSpecial(s string) bool {
	between := func(a, b string) bool { return strings.HasPrefix(s, a) && strings.HasSuffix(s, b) }
	return slices.Contains([]string{"<pad>", "<mask>", "<2mass>", "[@BOS@]"}, s) || between("<|", "|>") ||
		between("<\uff5c", "\uff5c>") || between("<unused", ">")
}
