package llamacpp

import (
	"slices"
	"strings"

	"ckptfs/formats/pyjson"
)

// A vocabulary of SentencePiece that transformers has saved without its model, as it does from version 5 on, is
// a tokenizer.json of a BPE that falls back to bytes. The converter lists the tokens as transformers loads
// them, and does not run the tokenizer. Which class of transformers loads it makes no difference for what is
// read here: all special tokens are said, and all are there. What the library tokenizers may refuse is refused.

// fallbackClasses are classes of transformers that load such a tokenizer.
var fallbackClasses = []string{"LlamaTokenizer", "LlamaTokenizerFast", "PreTrainedTokenizerFast",
	"TokenizersBackend"}

// namedTokens are the keys of the special tokens that have names.
var namedTokens = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
	"mask_token"}

// Keys of objects, with what they may be. 0 is anything.
var (
	fallbackConfig = map[string]kind{
		"add_bos_token": 0, "add_eos_token": 0, "add_prefix_space": 0, "bos_token": 0, "eos_token": 0, "unk_token": 0,
		"sep_token": 0, "pad_token": 0, "cls_token": 0, "mask_token": 0, "additional_special_tokens": 0,
		"extra_special_tokens": 0, "chat_template": 0, "tokenizer_class": kindText, "backend": kindText,
		"model_max_length": kindInt | kindFloat | kindNull, "model_input_names": kindTexts,
		"padding_side": kindText, "truncation_side": kindText, "legacy": kindBool | kindNull,
		"sp_model_kwargs": kindDict, "spaces_between_special_tokens": kindBool, "is_local": kindBool,
		"use_default_system_prompt": kindBool, "clean_up_tokenization_spaces": kindBool,
		"split_special_tokens": kindBool, "local_files_only": kindBool, "added_tokens_decoder": kindDict,
		"errors": kindText,
	}
	fallbackFile = map[string]kind{
		"version": kindText, "truncation": kindDict | kindNull, "padding": kindDict | kindNull, "added_tokens": 0, "model": 0,
		"normalizer": kindDict | kindNull, "pre_tokenizer": kindDict | kindNull,
		"post_processor": kindDict | kindNull, "decoder": kindDict,
	}
	fallbackModel = map[string]kind{
		"type": kindText, "dropout": kindNull, "unk_token": kindText | kindNull,
		"continuing_subword_prefix": kindNull, "end_of_word_suffix": kindNull, "fuse_unk": kindBool,
		"byte_fallback": kindBool, "ignore_merges": kindBool, "vocab": kindDict, "merges": 0,
	}
	fallbackToken = map[string]kind{
		"content": kindText, "single_word": kindBool, "lstrip": kindBool, "rstrip": kindBool,
		"normalized": kindBool, "special": kindBool,
	}
)

// only refuses an object that has other keys than these, or lacks one that it must have.
func only(file, what string, o *pyjson.Object, may map[string]kind, must ...string) error {
	for i := range o.Len() {
		key, v := o.Key(i)
		if k, ok := may[key]; !ok || k != 0 && kindOf(v)&k == 0 {
			return refuse(file, "it is not known what %.64q of %s changes", key, what)
		}
	}
	for _, key := range must {
		if _, ok := o.Get(key); !ok {
			return refuse(file, "%s has no %s", what, key)
		}
	}
	return nil
}

// isFallback reports whether a tokenizer falls back to bytes.
func isFallback(model *pyjson.Object) bool {
	return model.Value("type") == "BPE" && model.Value("byte_fallback") == true
}

// fallback sets the pairs of a vocabulary that falls back to bytes.
func (c *converter) fallback(o, model *pyjson.Object) error {
	if c.has(fileTekken) {
		return refuse(fileTekken, "it is not known what transformers makes of it")
	}
	err := loadable(o, model)
	if err == nil {
		err = c.limits(o)
	}
	if err != nil {
		return err
	}
	tokens, ids, err := vocabOf(model.Value("vocab").(*pyjson.Object))
	if err != nil {
		return err
	}
	if err := mergeable(model, ids); err != nil {
		return err
	}
	base := len(tokens)
	if tokens, _, err = c.alsoAdded(o, tokens, ids); err != nil {
		return err
	}
	const most = 100_000 // of a larger one transformers may change how it cuts text, and looks for that elsewhere
	if len(tokens) > most {
		return refuse(fileTokenizer, "it has %d tokens, more than %d", len(tokens), most)
	}
	named, err := c.specials(ids, "bos_token", "eos_token", "unk_token") // for which classes have others
	if err != nil {
		return err
	}
	config, err := c.json(fileTokenizing)
	if err != nil {
		return err
	}
	if class, _ := config.Value("tokenizer_class").(string); !slices.Contains(fallbackClasses, class) {
		return refuse(fileTokenizing, "the tokenizer_class %q is not converted here", class)
	}
	scores, types := make([]float32, len(tokens)), make([]int32, len(tokens))
	for i, s := range tokens {
		scores[i] = -1000
		switch {
		case i < base && isByte(s):
			types[i] = tokenByte
		case named[s]:
			types[i] = tokenControl
		case i < base:
			types[i] = tokenNormal
		default:
			types[i] = tokenUser
		}
	}
	c.set("tokenizer.ggml.model", "llama")
	c.set("tokenizer.ggml.pre", "default")
	c.set("tokenizer.ggml.tokens", tokens)
	c.set("tokenizer.ggml.scores", scores)
	c.set("tokenizer.ggml.token_type", types)
	s := special{types: specialTypes, vocab: int64(len(tokens))}
	if err := c.load(&s); err != nil {
		return err
	}
	return c.add(&s)
}

// isByte reports whether a token stands for a byte, as <0x0A> does.
func isByte(s string) bool {
	hex, ok := strings.CutPrefix(s, "<0x")
	hex, is := strings.CutSuffix(hex, ">")
	return ok && is && len(hex) == 2 && strings.Trim(hex, "0123456789abcdefABCDEF") == ""
}

// loadable refuses a tokenizer that has other parts than those of Llama 2's.
func loadable(o, model *pyjson.Object) error {
	err := only(fileTokenizer, "it", o, fallbackFile, "version", "added_tokens", "decoder")
	if err == nil {
		err = only(fileTokenizer, "its model", model, fallbackModel, "vocab", "merges")
	}
	switch {
	case err != nil:
		return err
	case o.Value("version") != "1.0":
		return refuse(fileTokenizer, "it is of version %v", o.Value("version"))
	case !matches(o.Value("normalizer"), nil,
		`{"type": "Prepend", "prepend": "▁"}`, `{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}`,
		`{"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
			{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}`):
		return refuse(fileTokenizer, "its normalizer is not one of Llama 2's")
	case !matches(o.Value("pre_tokenizer"), nil,
		`{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false}`,
		`{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": false}`,
		`{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": false}`):
		return refuse(fileTokenizer, "its pre-tokenizer is not one of Llama 2's")
	case !matches(o.Value("decoder"),
		`{"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
			{"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}`,
		`{"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
			{"type": "ByteFallback"}, {"type": "Fuse"}]}`):
		return refuse(fileTokenizer, "its decoder is not one of Llama 2's")
	}
	return template(o.Value("post_processor"))
}

// limits refuses what a tokenizer says of the length of texts, if transformers may not load it, or takes a
// special token of it. Else it does not count.
func (c *converter) limits(o *pyjson.Object) error {
	size := func(v any) (int64, bool) { n, _ := v.(pyjson.Number); return below(string(n), 1<<31) }
	side := func(v any) bool { return v == "Left" || v == "Right" }
	if t, _ := o.Value("truncation").(*pyjson.Object); t != nil {
		most, ok := size(t.Value("max_length"))
		stride, is := size(t.Value("stride"))
		strategy, _ := t.Value("strategy").(string)
		if !ok || !is || stride >= most || t.Len() != 4 || !side(t.Value("direction")) ||
			!slices.Contains([]string{"LongestFirst", "OnlyFirst", "OnlySecond"}, strategy) {
			return refuse(fileTokenizer, "its truncation is not known here")
		}
	}
	if p, _ := o.Value("padding").(*pyjson.Object); p != nil {
		_, ok := size(p.Value("pad_id"))
		_, is := size(p.Value("pad_type_id"))
		_, token := p.Value("pad_token").(string)
		if _, all := p.Get("pad_to_multiple_of"); !ok || !is || !token || !all || p.Value("pad_to_multiple_of") != nil ||
			p.Len() != 6 || p.Value("strategy") != "BatchLongest" || !side(p.Value("direction")) {
			return refuse(fileTokenizer, "its padding is not known here")
		}
		config, err := c.json(fileTokenizing)
		if err != nil {
			return err
		}
		if _, ok := config.Get("pad_token"); !ok {
			return refuse(fileTokenizing, "it has no pad_token, and %s pads", fileTokenizer)
		}
	}
	return nil
}

// matches reports whether a value is one of these, which are JSON or nil.
func matches(v any, of ...any) bool {
	return slices.ContainsFunc(of, func(x any) bool {
		text, ok := x.(string)
		if !ok {
			return v == nil
		}
		want, err := pyjson.Parse([]byte(text), 100)
		return err == nil && same(v, want)
	})
}

// same reports whether two values are equal, whatever the order of keys.
func same(a, b any) bool {
	switch a := a.(type) {
	case *pyjson.Object:
		b, ok := b.(*pyjson.Object)
		if !ok || a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			key, v := a.Key(i)
			if w, ok := b.Get(key); !ok || !same(v, w) {
				return false
			}
		}
		return true
	case pyjson.Array:
		b, ok := b.(pyjson.Array)
		return ok && slices.EqualFunc(a, b, same)
	}
	switch b.(type) {
	case *pyjson.Object, pyjson.Array:
		return false
	}
	return a == b
}

// template refuses a post-processor that is none, and no template that names tokens it has.
func template(v any) error {
	o, _ := v.(*pyjson.Object)
	if o == nil {
		return nil
	}
	bad := refuse(fileTokenizer, "its post-processor is not one of Llama 2's")
	known := map[string]kind{"type": kindText, "single": 0, "pair": 0, "special_tokens": kindDict}
	if o.Value("type") != "TemplateProcessing" || only(fileTokenizer, "it", o, known, "single", "pair", "special_tokens") != nil {
		return bad
	}
	tokens := o.Value("special_tokens").(*pyjson.Object)
	for i := range tokens.Len() {
		key, v := tokens.Key(i)
		t, _ := v.(*pyjson.Object)
		ids, _ := t.Value("ids").(pyjson.Array)
		if len(ids) != 1 || !same(t.Value("tokens"), pyjson.Array{key}) || t.Value("id") != key || t.Len() != 3 {
			return bad
		}
		if n, _ := ids[0].(pyjson.Number); !isID(n) {
			return bad
		}
	}
	for _, key := range []string{"single", "pair"} {
		list, ok := o.Value(key).(pyjson.Array)
		if !ok {
			return bad
		}
		sequences := ""
		for _, v := range list {
			item, _ := v.(*pyjson.Object)
			token, is := item.Value("SpecialToken").(*pyjson.Object)
			if !is {
				token, is = item.Value("Sequence").(*pyjson.Object)
				id, _ := token.Value("id").(string)
				sequences += id
			} else if id, _ := token.Value("id").(string); tokens.Value(id) == nil {
				return bad
			}
			n, _ := token.Value("type_id").(pyjson.Number)
			if !is || item.Len() != 1 || token.Len() != 2 || n != "0" && n != "1" {
				return bad
			}
		}
		if key == "single" && sequences != "A" || key == "pair" && sequences != "AB" {
			return bad
		}
	}
	return nil
}

// isID reports whether a number is an id as libraries write one.
func isID(n pyjson.Number) bool { _, ok := below(string(n), 1<<31); return ok }

// vocabOf are the tokens of a model by their ids, which follow each other from 0 on, and the ids.
func vocabOf(vocab *pyjson.Object) (tokens []string, ids map[string]int64, err error) {
	tokens, ids = make([]string, vocab.Len()), make(map[string]int64, vocab.Len())
	for i := range vocab.Len() {
		token, v := vocab.Key(i)
		n, _ := v.(pyjson.Number)
		id, ok := below(string(n), int64(len(tokens)))
		if !ok || token == "" || tokens[id] != "" {
			return nil, nil, refuse(fileTokenizer, "token %.64q is empty, or its id is none or another's", token)
		}
		tokens[id], ids[token] = token, id
	}
	return tokens, ids, nil
}

// mergeable refuses merges that are not of tokens to a token.
func mergeable(model *pyjson.Object, ids map[string]int64) error {
	list, ok := model.Value("merges").(pyjson.Array)
	if !ok {
		return refuse(fileTokenizer, "its merges are no list")
	}
	for i, v := range list {
		var pair []string
		switch v := v.(type) {
		case string:
			pair = strings.Split(v, " ")
		case pyjson.Array:
			for _, x := range v {
				s, _ := x.(string)
				pair = append(pair, s)
			}
		}
		ok := len(pair) == 2 && kindOf(v)&kindText == kindOf(list[0])&kindText && pair[0] != "#version:"
		if ok {
			for _, s := range []string{pair[0], pair[1], pair[0] + pair[1]} {
				_, is := ids[s]
				ok = ok && is
			}
		}
		if !ok {
			return refuse(fileTokenizer, "merge %d is not of two tokens to a third", i)
		}
	}
	return nil
}
