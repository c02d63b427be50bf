package llamacpp

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"ckptfs/formats/pyjson"
)

// The converter finds a byte-level BPE's name, tokenizer.ggml.pre, by the tokens that a text becomes: of
// these it has a table. Here most tokenizers are not run. Known are vocabularies with their merges, by a
// digest, together with all of the tokenizer that has a say in how that text is cut. Such a tokenizer gives the
// converter's name. Any other is run on that text (byteLevel).

// known are vocabularies: SHA-256 of the tokens in the order of their ids, a newline behind each, and then of
// the merges.
var known = map[string]struct {
	pre   string
	archs []string // that it is tried with
	count int      // of tokens
}{
	"322adf143aa99d8739270ffaa8350dac3945ab990095d648ae1117e68dec14ca": {"llama-bpe", []string{"llama"}, 128000},
	"a577405ffc533161b5a1148a82dc662c6f759ea7ff84334fe80de218fcd29123": {"qwen2", []string{"qwen2", "qwen3", "qwen2moe", "qwen3moe"}, 151643},
}

// pattern3 is how Llama 3 cuts a text.
const pattern3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+` +
	`|\s+(?!\S)|\s+`

// tokenizing are the keys that the config of a tokenizer may have: others can change what it is.
var tokenizing = strings.Fields(`add_bos_token add_eos_token add_prefix_space added_tokens_decoder
	additional_special_tokens extra_special_tokens bos_token eos_token pad_token unk_token chat_template
	clean_up_tokenization_spaces errors model_max_length model_input_names split_special_tokens tokenizer_class
	backend is_local padding_side`)

// addedToken is a token beside those of the model.
type addedToken struct {
	id      int64
	content string
	special bool
	flags   [4]bool
}

// bytePairs sets the pairs of a byte-level BPE.
func (c *converter) bytePairs() error {
	o, err := c.json(fileTokenizer)
	if err != nil {
		return err
	}
	if o == nil {
		return refuse(fileTokenizer, "neither it nor %s is there", filePieces)
	}
	m, _ := o.Get("model")
	model, _ := m.(*pyjson.Object)
	v, _ := model.Get("vocab")
	vocab, _ := v.(*pyjson.Object)
	typ, _ := model.Get("type")
	fallback, _ := model.Get("byte_fallback")
	if c.arch == "llama" && isFallback(model) {
		return c.fallback(o, model)
	}
	if typ != "BPE" || vocab == nil || fallback != nil && fallback != false {
		return refuse(fileTokenizer, "its model is no byte-level BPE, and others are not converted here")
	}
	if c.knownBPE(o, model, vocab) == nil {
		return nil
	}
	return c.byteLevel(o, model)
}

// knownBPE sets the pairs of a known vocabulary.
func (c *converter) knownBPE(o, model, vocab *pyjson.Object) (err error) {
	s := special{types: specialTypes}
	if s.merges, err = mergesOf(model); err != nil {
		return err
	}
	tokens, err := c.baseTokens(vocab)
	if err != nil {
		return err
	}
	pre, err := c.name(tokens[:vocab.Len()], s.merges)
	if err != nil {
		return err
	}
	added, err := c.addedTokens(o, vocab.Len())
	if err != nil {
		return err
	}
	if err := c.alike(o, model, added); err != nil {
		return err
	}
	types := make([]int32, len(tokens))
	for i := range tokens {
		if types[i] = tokenNormal; i >= vocab.Len() {
			tokens[i], types[i] = fmt.Sprintf("[PAD%d]", i), tokenUnused
		}
	}
	for _, t := range added {
		if t.id >= int64(len(tokens)) {
			return refuse(fileTokenizer, "token %d is not below the vocab_size of %s", t.id, fileConfig)
		}
		if tokens[t.id], types[t.id] = t.content, tokenUser; t.special || looksSpecial(t.content) {
			types[t.id] = tokenControl
		}
	}
	c.set("tokenizer.ggml.model", "gpt2")
	c.set("tokenizer.ggml.pre", pre)
	c.set("tokenizer.ggml.tokens", tokens)
	c.set("tokenizer.ggml.token_type", types)
	if err := c.load(&s); err != nil {
		return err
	}
	return c.add(&s)
}

// baseTokens are the tokens of a model by their ids, with room up to the config's vocab_size.
func (c *converter) baseTokens(vocab *pyjson.Object) ([]string, error) {
	if int64(vocab.Len()) > c.vocab {
		return nil, refuse(fileTokenizer, "it has %d tokens, more than the vocab_size of %s", vocab.Len(), fileConfig)
	}
	tokens := make([]string, c.vocab)
	for i := range vocab.Len() {
		token, v := vocab.Key(i)
		n, _ := v.(pyjson.Number)
		id, ok := n.Int()
		if !ok || id < 0 || id >= int64(vocab.Len()) || token == "" || tokens[id] != "" {
			return nil, refuse(fileTokenizer, "token %.64q is empty, or its id is no other's", token)
		}
		tokens[id] = token
	}
	return tokens, nil
}

// name is what the converter calls a vocabulary with its merges.
func (c *converter) name(tokens, merges []string) (string, error) {
	h := sha256.New()
	for _, list := range [][]string{tokens, merges} {
		for _, s := range list {
			io.WriteString(h, s)
			io.WriteString(h, "\n")
		}
	}
	x, ok := known[hex.EncodeToString(h.Sum(nil))]
	if !ok || x.count != len(tokens) || !slices.Contains(x.archs, c.arch) {
		return "", refuse(fileTokenizer, "its vocabulary is not known here, and the converter names it by what it makes "+
			"of a text")
	}
	return x.pre, nil
}

// addedTokens are the tokens beside those of the model, of which there are so many: with ids that follow.
func (c *converter) addedTokens(o *pyjson.Object, base int) ([]addedToken, error) {
	v, _ := o.Get("added_tokens")
	list, _ := v.(pyjson.Array)
	var out []addedToken
	for _, v := range list {
		t, _ := v.(*pyjson.Object)
		x, _ := t.Get("id")
		n, _ := x.(pyjson.Number)
		id, ok := n.Int()
		token, err := tokenOf(fileTokenizer, t)
		if err != nil {
			return nil, err
		}
		token.id = id
		if !ok {
			return nil, refuse(fileTokenizer, "an added token has no id")
		}
		out = append(out, token)
	}
	slices.SortFunc(out, func(a, b addedToken) int { return cmp.Compare(a.id, b.id) })
	contents := make(map[string]bool)
	for i, t := range out {
		if t.id != int64(base+i) || contents[t.content] {
			return nil, refuse(fileTokenizer, "the ids of added tokens do not follow those of the model")
		}
		contents[t.content] = true
	}
	return out, c.sameTokens(out)
}

// tokenOf is an added token as an object describes it. It is of a kind that is in no text by chance, and is
// encoded and decoded as itself.
func tokenOf(file string, o *pyjson.Object) (t addedToken, err error) {
	v, _ := o.Get("content")
	t.content, _ = v.(string)
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	if !strings.HasPrefix(t.content, "<") || strings.IndexFunc(t.content, odd) >= 0 {
		return t, refuse(file, "the added token %.64q does not begin with <, or has a space or what is not ASCII", t.content)
	}
	for i, to := range []*bool{&t.special, &t.flags[0], &t.flags[1], &t.flags[2], &t.flags[3]} {
		key := []string{"special", "single_word", "lstrip", "rstrip", "normalized"}[i]
		if *to, err = truth(file, o, key); err != nil {
			return t, err
		}
	}
	return t, nil
}

// sameTokens refuses files that say of added tokens what tokenizer.json does not.
func (c *converter) sameTokens(added []addedToken) error {
	byContent := make(map[string]addedToken)
	for _, t := range added {
		byContent[t.content] = t
	}
	config, err := c.json(fileTokenizing)
	if err != nil {
		return err
	}
	if v, ok := config.Get("added_tokens_decoder"); ok {
		o, _ := v.(*pyjson.Object)
		if o.Len() != len(added) {
			return refuse(fileTokenizing, "it has other added tokens than %s", fileTokenizer)
		}
		for i := range o.Len() {
			key, v := o.Key(i)
			x, _ := v.(*pyjson.Object)
			t, err := tokenOf(fileTokenizing, x)
			if err != nil {
				return err
			}
			t.id, _ = strconv.ParseInt(key, 10, 64)
			if byContent[t.content] != t || strconv.FormatInt(t.id, 10) != key {
				return refuse(fileTokenizing, "the added token %.64q is another in %s", t.content, fileTokenizer)
			}
		}
	}
	more, err := c.json(fileAdded)
	if err != nil {
		return err
	}
	for i := range more.Len() {
		key, v := more.Key(i)
		n, _ := v.(pyjson.Number)
		if id, ok := n.Int(); !ok || byContent[key].content == "" || byContent[key].id != id {
			return refuse(fileAdded, "the added token %.64q is another in %s", key, fileTokenizer)
		}
	}
	special, err := c.json(fileSpecial)
	if err != nil {
		return err
	}
	for _, x := range []struct {
		file string
		o    *pyjson.Object
	}{{fileTokenizing, config}, {fileSpecial, special}} {
		for i := range x.o.Len() {
			key, v := x.o.Key(i)
			several := slices.Contains([]string{"additional_special_tokens", "extra_special_tokens"}, key)
			one := slices.Contains([]string{"bos_token", "eos_token", "pad_token", "unk_token"}, key)
			list, ok := v.(pyjson.Array)
			switch {
			case !one && !several:
				if x.file == fileSpecial {
					return refuse(x.file, "it is not known what %s is", key)
				}
				continue
			case one:
				list = pyjson.Array{v}
			case !ok && v != nil:
				return refuse(x.file, "%s is no list", key)
			}
			for _, v := range list {
				if o, ok := v.(*pyjson.Object); ok {
					v, _ = o.Get("content")
				}
				if s, ok := v.(string); v != nil && (!ok || !byContent[s].special) {
					return refuse(x.file, "%s is no special token of %s", key, fileTokenizer)
				}
			}
		}
	}
	if c.arch != "llama" && !byContent["<|endoftext|>"].special {
		return refuse(fileTokenizer, "it has no special token <|endoftext|>")
	}
	return nil
}

// alike refuses a tokenizer that may cut text otherwise than the known one of its vocabulary.
func (c *converter) alike(o, model *pyjson.Object, added []addedToken) error {
	config, err := c.json(fileTokenizing)
	if err != nil {
		return err
	}
	for i := range config.Len() {
		if key, _ := config.Key(i); !slices.Contains(tokenizing, key) {
			return refuse(fileTokenizing, "it is not known what %s changes", key)
		}
	}
	flags := map[string]bool{}
	for _, key := range []string{"add_bos_token", "add_eos_token", "add_prefix_space", "split_special_tokens"} {
		if flags[key], err = truth(fileTokenizing, config, key); err != nil {
			return err
		}
	}
	class, _ := config.Get("tokenizer_class")
	for _, key := range []string{"truncation", "padding"} {
		if v, _ := o.Get(key); v != nil {
			return refuse(fileTokenizer, "it has a %s", key)
		}
	}
	if flags["add_eos_token"] || flags["add_prefix_space"] || flags["split_special_tokens"] {
		return refuse(fileTokenizing, "it changes what a text becomes")
	}
	post, _ := o.Get("post_processor")
	if c.arch != "llama" {
		switch {
		case class != "Qwen2Tokenizer" && class != "Qwen2TokenizerFast":
			return refuse(fileTokenizing, "the tokenizer_class %v is not converted here", class)
		case flags["add_bos_token"]:
			return refuse(fileTokenizing, "it changes what a text becomes")
		case !isLevel(post):
			return refuse(fileTokenizer, "its post-processor is not that of a Qwen2Tokenizer")
		}
		return nil // this class has a normalizer and a pre-tokenizer of its own
	}
	if class != "PreTrainedTokenizerFast" && class != "TokenizersBackend" {
		return refuse(fileTokenizing, "the tokenizer_class %v is not converted here", class)
	}
	if normalizer, _ := o.Get("normalizer"); normalizer != nil {
		return refuse(fileTokenizer, "it has a normalizer")
	}
	for i := range model.Len() {
		key, v := model.Key(i)
		if slices.Contains([]string{"type", "vocab", "merges", "ignore_merges"}, key) {
			continue
		}
		if v != nil && v != false && v != "" {
			return refuse(fileTokenizer, "it is not known what %s of its model changes", key)
		}
	}
	if v, _ := model.Get("ignore_merges"); v != true {
		return refuse(fileTokenizer, "its model does not ignore merges")
	}
	if pre, _ := o.Get("pre_tokenizer"); !cutsAs(pre, pattern3) {
		return refuse(fileTokenizer, "its pre-tokenizer is not that of Llama 3")
	}
	if _, said := config.Get("add_bos_token"); said {
		return refuse(fileTokenizing, "it changes which tokens are added")
	}
	if len(added) == 0 || added[0].content != "<|begin_of_text|>" || !begins(post, added[0]) {
		return refuse(fileTokenizer, "its post-processor does not add <|begin_of_text|> alone")
	}
	return nil
}

// isLevel reports whether a step is ByteLevel, which does not cut.
func isLevel(v any) bool {
	o, _ := v.(*pyjson.Object)
	return o.Value("type") == "ByteLevel"
}

// cutsAs reports whether a pre-tokenizer cuts by a pattern, and then takes bytes as they are.
func cutsAs(v any, pattern string) bool {
	o, _ := v.(*pyjson.Object)
	list, _ := o.Value("pretokenizers").(pyjson.Array)
	if o.Value("type") != "Sequence" || len(list) != 2 || !isLevel(list[1]) {
		return false
	}
	split, _ := list[0].(*pyjson.Object)
	level := list[1].(*pyjson.Object)
	by, _ := split.Value("pattern").(*pyjson.Object)
	return split.Value("type") == "Split" && by.Value("Regex") == pattern &&
		split.Value("behavior") == "Isolated" && split.Value("invert") == false &&
		level.Value("add_prefix_space") == false && level.Value("use_regex") == false
}

// begins reports whether a post-processor puts one token before a text, and does nothing else.
func begins(v any, first addedToken) bool {
	o, _ := v.(*pyjson.Object)
	steps := pyjson.Array{o}
	if o.Value("type") == "Sequence" {
		steps, _ = o.Value("processors").(pyjson.Array)
	}
	templates := 0
	for _, v := range steps {
		if isLevel(v) {
			continue
		}
		p, _ := v.(*pyjson.Object)
		tokens, sequences, err := items(p, "single")
		ids, _ := p.Value("special_tokens").(*pyjson.Object)
		of, _ := ids.Value(first.content).(*pyjson.Object)
		list, _ := of.Value("ids").(pyjson.Array)
		want, text := []string{first.content, ""}, []string{"", "A"}
		if p.Value("type") != "TemplateProcessing" || err != nil || len(list) != 1 ||
			!slices.Equal(tokens, want) || !slices.Equal(sequences, text) {
			return false
		}
		n, _ := list[0].(pyjson.Number)
		if id, ok := n.Int(); !ok || id != first.id {
			return false
		}
		templates++
	}
	return templates == 1
}
