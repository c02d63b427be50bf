package llamacpp

import (
	"maps"
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
		"version": kindText, "truncation": kindNull, "padding": kindNull, "added_tokens": 0, "model": 0,
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
	if err := loadable(o, model); err != nil {
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

// alsoAdded are the tokens with those that are added to the model's, by their ids. It completes ids.
func (c *converter) alsoAdded(
	o *pyjson.Object, tokens []string, ids map[string]int64,
) ([]string, map[string]*pyjson.Object, error) {
	list, ok := o.Value("added_tokens").(pyjson.Array)
	if !ok {
		return nil, nil, refuse(fileTokenizer, "added_tokens is no list")
	}
	withID := maps.Clone(fallbackToken)
	withID["id"] = kindInt
	all := slices.Collect(maps.Keys(withID))
	added := make(map[string]*pyjson.Object)
	last := int64(-1)
	for _, v := range list {
		t, ok := v.(*pyjson.Object)
		if !ok {
			return nil, nil, refuse(fileTokenizer, "an added token is no object")
		}
		if err := only(fileTokenizer, "an added token", t, withID, all...); err != nil {
			return nil, nil, err
		}
		content := t.Value("content").(string)
		n := t.Value("id").(pyjson.Number)
		id, is := below(string(n), int64(len(tokens))+1)
		known, there := ids[content]
		if !is || id <= last || content == "" || there && known != id || !there && id != int64(len(tokens)) {
			return nil, nil, refuse(fileTokenizer, "the added token %.64q has another's id, or one that does not follow", content)
		}
		if last = id; !there {
			tokens, ids[content] = append(tokens, content), id
		}
		added[content] = t
	}
	return tokens, added, c.saidOfAdded(added, ids)
}

// saidOfAdded refuses files that say of added tokens what tokenizer.json does not.
func (c *converter) saidOfAdded(added map[string]*pyjson.Object, ids map[string]int64) error {
	config, err := c.json(fileTokenizing)
	if err != nil {
		return err
	}
	decoder, _ := config.Value("added_tokens_decoder").(*pyjson.Object)
	for i := range decoder.Len() {
		key, v := decoder.Key(i)
		t, _ := v.(*pyjson.Object)
		content, _ := t.Value("content").(string)
		id, ok := below(key, 1<<31)
		if err := only(fileTokenizing, "an added token", t, fallbackToken, "content"); err != nil {
			return err
		}
		if !ok || added[content] == nil || ids[content] != id {
			return refuse(fileTokenizing, "the added token %.64q is none of %s", content, fileTokenizer)
		}
	}
	more, err := c.json(fileAdded)
	if err != nil {
		return err
	}
	for i := range more.Len() {
		key, v := more.Key(i)
		n, _ := v.(pyjson.Number)
		if id, ok := below(string(n), 1<<31); !ok || added[key] == nil || ids[key] != id {
			return refuse(fileAdded, "the added token %.64q is none of %s", key, fileTokenizer)
		}
	}
	return nil
}

// specials are the special tokens that the config names, these at least. All of them have ids.
func (c *converter) specials(ids map[string]int64, must ...string) (map[string]bool, error) {
	config, err := c.json(fileTokenizing)
	if err != nil {
		return nil, err
	}
	if err := only(fileTokenizing, "it", config, fallbackConfig, append(must, "tokenizer_class")...); err != nil {
		return nil, err
	}
	for _, key := range []string{"padding_side", "truncation_side"} {
		if v, ok := config.Get(key); ok && v != "left" && v != "right" {
			return nil, refuse(fileTokenizing, "%s is %v", key, v)
		}
	}
	out := make(map[string]bool)
	say := func(key string, v any) error {
		s, ok := v.(string)
		if o, is := v.(*pyjson.Object); is && o.Value("__type") == "AddedToken" {
			may := maps.Clone(fallbackToken)
			may["__type"] = kindText
			if err := only(fileTokenizing, key, o, may, "content"); err != nil {
				return err
			}
			s, ok = o.Value("content").(string), true
		}
		if _, is := ids[s]; !ok || !is {
			return refuse(fileTokenizing, "%s is no token of %s", key, fileTokenizer)
		}
		out[s] = true
		return nil
	}
	lists := 0
	for i := range config.Len() {
		key, v := config.Key(i)
		list, is := v.(pyjson.Array)
		switch {
		case v == nil:
		case slices.Contains(namedTokens, key):
			if err := say(key, v); err != nil {
				return nil, err
			}
		case key == "additional_special_tokens", key == "extra_special_tokens":
			if lists++; !is || lists > 1 {
				return nil, refuse(fileTokenizing, "its lists of special tokens are several, or none")
			}
			for _, v := range list {
				if err := say(key, v); err != nil {
					return nil, err
				}
			}
		}
	}
	return out, c.sameSpecials(config)
}

// sameSpecials refuses a list of special tokens beside the config that says something else. Where the config
// has the added tokens it is not read.
func (c *converter) sameSpecials(config *pyjson.Object) error {
	o, err := c.json(fileSpecial)
	if _, ok := config.Get("added_tokens_decoder"); ok || err != nil {
		return err
	}
	for i := range o.Len() {
		key, v := o.Key(i)
		if t, is := v.(*pyjson.Object); is && only(fileSpecial, key, t, fallbackToken, "content") == nil {
			v = t.Value("content")
		}
		was, ok := config.Get(key)
		if t, is := was.(*pyjson.Object); is { // that is known to be one
			was = t.Value("content")
		}
		if _, is := v.(string); !ok || !is || was != v || !slices.Contains(namedTokens, key) {
			return refuse(fileSpecial, "%s is another in %s", key, fileTokenizing)
		}
	}
	return nil
}
