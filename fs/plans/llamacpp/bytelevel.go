package llamacpp

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ckptfs/formats/pyjson"
)

// A byte-level BPE that is none of the known ones (bpe.go) is run here on the one text by whose tokens the
// converter finds its name. How that text is cut is known for some pre-tokenizers (cuts). Two ways in which
// transformers loads a tokenizer.json are known: as it is, and as a Qwen2Tokenizer, which has a normalizer and
// a pre-tokenizer of its own.

// checkText is the converter's text. It is in normal form C.
const checkText = "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n🚀 (normal) 😶\u200d🌫️ (multiple emojis concatenated) ✅ 🦙🦙 " +
	"3 33 333 3333 33333 333333 3333333 33333333 3.3 3..3 3...3 កាន់តែពិសេសអាច😁 ?我想在apple工作1314151天～ ------======= " +
	"нещо на Български ''''''```````\"\"\"\"......!!!!!!?????? I've been 'told he's there, 'RE you sure? 'M not sure " +
	"I'll make it, 'D you like some tea? We'Ve a'lL"

// Patterns by which tokenizers cut a text.
const (
	patternQwen = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+` +
		`|\s+(?!\S)|\s+`
	patternTekken = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+` +
		`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}` +
		`| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternGPT4o = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// cuts are how many bytes of checkText each part has, by the pattern, or by the type of the pre-tokenizer.
// testdata/bpe.py asks the library tokenizers what it makes of the text by each.
var cuts = map[string]string{
	pattern3: `34 4 2 6 1 15 2 8 7 13 1 4 9 1 1 1 2 1 3 1 3 1 1 3 2 1 3 3 1 3 3 1 1 3 3 2 1 1 1 1 1 1 2 1 1 1
		3 1 4 6 6 6 6 9 6 4 2 20 3 3 1 3 3 14 9 5 19 36 2 3 5 2 4 3 2 6 1 2 2 4 5 1 2 1 4 5 2 3 5 3 1 2
		1 4 5 5 4 1 3 3 2 3`,
	patternQwen: `34 4 2 6 1 15 2 8 7 13 1 4 9 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
		1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 2 1 1 1 3 1 4 6 6 6 6 9 6 4 2 20 1 1 1 1 1 1 1 3 3 14 9 5 19
		36 2 3 5 2 4 3 2 6 1 2 2 4 5 1 2 1 4 5 2 3 5 3 1 2 1 4 5 5 4 1 3 3 2 3`,
	patternTekken: `34 4 2 6 1 15 2 8 7 13 1 4 9 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
		1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 2 1 1 1 3 1 43 4 2 20 1 1 1 1 1 1 1 3 3 14 9 5 19 36 2 3 5 2
		4 3 2 6 1 2 2 4 5 1 2 1 4 5 2 3 5 3 1 2 1 4 5 5 4 1 3 3 2 2 1`,
	patternGPT4o: `34 4 2 6 1 15 2 8 7 13 1 4 9 1 1 1 2 1 3 1 3 1 1 3 2 1 3 3 1 3 3 1 1 3 3 2 1 1 1 1 1 1 2 1 1 1
		3 1 43 4 2 20 3 3 1 3 3 14 9 5 19 36 5 5 2 4 5 6 1 2 2 4 5 1 2 1 4 5 5 5 3 1 2 1 4 5 5 4 1 6 5`,
	"ByteLevel": `33 1 4 2 6 1 15 2 8 7 13 1 4 9 2 3 4 5 6 7 8 9 2 1 1 2 2 1 2 3 1 4 3 3 3 3 3 3 3 3 3 6 3 3 4 2
		20 7 3 3 14 9 5 19 36 2 3 5 2 4 3 2 6 1 2 2 4 5 1 2 1 4 5 2 3 5 3 1 2 1 4 5 5 4 1 3 1 2 2 1 2`,
	"Digits": `33 1 4 2 6 1 15 2 8 7 13 1 4 9 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
		1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 2 1 1 1 3 1 4 3 3 3 3 3 3 3 3 3 6 3 3 4 2 20 1 1 1 1 1 1 1
		3 3 14 9 5 19 36 2 3 5 2 4 3 2 6 1 2 2 4 5 1 2 1 4 5 2 3 5 3 1 2 1 4 5 5 4 1 3 1 2 2 1 2`,
}

// byteLevel sets the pairs of a byte-level BPE of any vocabulary.
func (c *converter) byteLevel(o, model *pyjson.Object) error {
	asQwen, err := c.loadedAs()
	if err != nil {
		return err
	}
	cut, ignoreMerges, err := levelParts(o, model, asQwen)
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
	s := special{types: specialTypes}
	if s.merges, err = mergesOf(model); err != nil {
		return err
	}
	if slices.ContainsFunc(s.merges, func(m string) bool { return strings.Count(m, " ") != 1 }) ||
		spaced(model.Value("merges").(pyjson.Array)) {
		return refuse(fileTokenizer, "a token of its merges has a space")
	}
	b := bpe{ids: ids, ignoreMerges: ignoreMerges && !asQwen}
	b.take(s.merges, cut)
	list, err := b.encode(cut) // of the model's tokens alone: added ones are not in the text
	if err != nil {
		return err
	}
	tokens, added, err := c.alsoAdded(o, tokens, ids)
	if err != nil {
		return err
	}
	if err := c.plainSpecials(added, ids, asQwen); err != nil {
		return err
	}
	first, last := around(o.Value("post_processor"))
	list = slices.Concat(first, list, last)
	hash := sha256.Sum256([]byte(strings.ReplaceAll(fmt.Sprint(list), " ", ", ")))
	pre, ok := preTokenizers[hex.EncodeToString(hash[:])]
	if !ok {
		return refuse(fileTokenizer, "the converter has no name for what it makes of a text of %d tokens, beginning %d",
			len(list), list[0])
	}
	if int64(len(tokens)) > c.vocab {
		return refuse(fileTokenizer, "it has %d tokens, more than the vocab_size of %s", len(tokens), fileConfig)
	}
	types := make([]int32, c.vocab)
	for i := range types {
		types[i] = tokenNormal
		if i >= len(tokens) {
			tokens, types[i] = append(tokens, fmt.Sprintf("[PAD%d]", i)), tokenUnused
		}
	}
	for content, t := range added {
		id := ids[content]
		types[id] = tokenControl
		if t.Value("special") != true && !looksSpecial(content) {
			tokens[id], types[id] = strings.ReplaceAll(content, "\u2581", " "), tokenUser
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

// spaced reports whether a token of some merges has a space, which mergesOf does not leave as it is.
func spaced(merges pyjson.Array) bool {
	for _, v := range merges {
		pair, _ := v.(pyjson.Array)
		for _, x := range pair {
			if s, _ := x.(string); strings.Contains(s, " ") {
				return true
			}
		}
	}
	return false
}

// loadedAs reports whether transformers loads the tokenizer as a Qwen2Tokenizer. Else it does so as it is.
func (c *converter) loadedAs() (asQwen bool, err error) {
	config, err := c.json(fileTokenizing)
	if err != nil {
		return false, err
	}
	model, err := c.json(fileConfig)
	if err != nil {
		return false, err
	}
	for _, key := range []string{"tokenizer_class", "model_name"} {
		if _, ok := model.Get(key); ok {
			return false, refuse(fileConfig, "it is not known what %s changes", key)
		}
	}
	class, _ := config.Value("tokenizer_class").(string)
	isQwen := class == "Qwen2Tokenizer" || class == "Qwen2TokenizerFast"
	switch {
	case c.has(fileTekken):
		return false, refuse(fileTekken, "it is not known what transformers makes of it")
	case isQwen && c.arch == "llama" || !isQwen && !slices.Contains(fallbackClasses, class):
		return false, refuse(fileTokenizing, "the tokenizer_class %q is not converted here", class)
	case config.Value("split_special_tokens") == true || config.Value("add_prefix_space") == true:
		return false, refuse(fileTokenizing, "it changes what a text becomes")
	}
	return isQwen || c.model == "qwen2", nil // which transformers takes for wrong about its class
}

// levelParts are the parts in which a tokenizer cuts the text, and whether a part that is a token is one. It
// refuses one that has other parts than known ones.
func levelParts(o, model *pyjson.Object, asQwen bool) (parts []string, ignoreMerges bool, err error) {
	err = only(fileTokenizer, "it", o, fallbackFile, "version", "added_tokens", "decoder", "normalizer", "pre_tokenizer",
		"post_processor")
	if err == nil {
		err = only(fileTokenizer, "its model", model, levelModel, "vocab", "merges")
	}
	bad := func(what string) ([]string, bool, error) {
		return nil, false, refuse(fileTokenizer, "its %s is not known here", what)
	}
	for _, key := range []string{"unk_token", "continuing_subword_prefix", "end_of_word_suffix"} {
		if v := model.Value(key); v != nil && v != "" && err == nil {
			return bad(key)
		}
	}
	switch {
	case err != nil:
		return nil, false, err
	case o.Value("version") != "1.0":
		return nil, false, refuse(fileTokenizer, "it is of version %v", o.Value("version"))
	case !matches(o.Value("normalizer"), nil, `{"type": "NFC"}`, `{"type": "Sequence", "normalizers": []}`):
		return bad("normalizer")
	case !isByteLevel(o.Value("decoder"), true, false):
		return bad("decoder")
	}
	by := patternQwen
	if cut := cutBy(o.Value("pre_tokenizer")); !asQwen {
		by = cut
	} else if cut == "" {
		return bad("pre-tokenizer")
	}
	if cuts[by] == "" {
		return bad("pre-tokenizer")
	}
	if !knownAround(o.Value("post_processor")) {
		return bad("post-processor")
	}
	at := 0
	for _, s := range strings.Fields(cuts[by]) {
		n := 0
		fmt.Sscan(s, &n)
		parts = append(parts, checkText[at:at+n])
		at += n
	}
	return parts, model.Value("ignore_merges") == true, nil
}

var levelModel = map[string]kind{
	"type": kindText, "dropout": kindNull, "unk_token": kindText | kindNull,
	"continuing_subword_prefix": kindText | kindNull, "end_of_word_suffix": kindText | kindNull,
	"fuse_unk": kindBool, "byte_fallback": kindBool, "ignore_merges": kindBool, "vocab": kindDict, "merges": 0,
}

// isByteLevel reports whether a step is ByteLevel, and cuts or not; of a decoder or a post-processor that does
// not count.
func isByteLevel(v any, anyway, cuts bool) bool {
	o, _ := v.(*pyjson.Object)
	may := map[string]kind{"type": kindText, "add_prefix_space": kindBool, "trim_offsets": kindBool, "use_regex": kindBool}
	if o.Value("type") != "ByteLevel" || only(fileTokenizer, "it", o, may, "add_prefix_space", "trim_offsets") != nil {
		return false
	}
	regex, said := o.Get("use_regex")
	return anyway || o.Value("add_prefix_space") == false && (!said || regex == true) == cuts
}

// cutBy is by which of cuts a pre-tokenizer cuts; "" where that is not known.
func cutBy(v any) string {
	if isByteLevel(v, false, true) {
		return "ByteLevel"
	}
	o, _ := v.(*pyjson.Object)
	list, _ := o.Value("pretokenizers").(pyjson.Array)
	if o.Value("type") != "Sequence" || o.Len() != 2 || len(list) != 2 {
		return ""
	}
	first, _ := list[0].(*pyjson.Object)
	if matches(first, `{"type": "Digits", "individual_digits": true}`) && isByteLevel(list[1], false, true) {
		return "Digits"
	}
	pattern, _ := first.Value("pattern").(*pyjson.Object)
	regex, _ := pattern.Value("Regex").(string)
	if first.Value("type") != "Split" || first.Len() != 4 || pattern.Len() != 1 || first.Value("behavior") != "Isolated" ||
		first.Value("invert") != false || !isByteLevel(list[1], false, false) || regex == "ByteLevel" || regex == "Digits" {
		return ""
	}
	return regex
}

// steps are those of a post-processor.
func steps(v any) pyjson.Array {
	o, _ := v.(*pyjson.Object)
	if o.Value("type") == "Sequence" && o.Len() == 2 {
		list, _ := o.Value("processors").(pyjson.Array)
		return list
	}
	return pyjson.Array{v}
}

// knownAround reports whether a post-processor puts known tokens around a text, and does nothing else.
func knownAround(v any) bool {
	n := 0
	for _, v := range steps(v) {
		switch {
		case v == nil, isByteLevel(v, true, false):
		case template(v) == nil:
			n++
		default:
			return false
		}
	}
	return n <= 1
}

// around are the ids that a known post-processor puts before and behind a text.
func around(v any) (first, last []int64) {
	for _, v := range steps(v) {
		o, _ := v.(*pyjson.Object)
		if o.Value("type") != "TemplateProcessing" {
			continue
		}
		all := o.Value("special_tokens").(*pyjson.Object)
		to := &first
		for _, v := range o.Value("single").(pyjson.Array) {
			t, ok := v.(*pyjson.Object).Value("SpecialToken").(*pyjson.Object)
			if !ok {
				to = &last
				continue
			}
			id, _ := t.Value("id").(string)
			n, _ := all.Value(id).(*pyjson.Object).Value("ids").(pyjson.Array)[0].(pyjson.Number).Int()
			*to = append(*to, n)
		}
	}
	return first, last
}

// plainSpecials refuses added tokens that may be in the text, or are not decoded as themselves, and special
// tokens that are none of those.
func (c *converter) plainSpecials(added map[string]*pyjson.Object, ids map[string]int64, asQwen bool) error {
	for _, content := range slices.Sorted(maps.Keys(added)) { // the reason is the same at each lookup
		outside := strings.IndexFunc(content, func(r rune) bool { return r > 0x143 }) >= 0
		odd := func(r rune) bool {
			return r <= ' ' || r == 0x7f || r > '~' && !outside || r == '\u00a0' || r == '\ufffd'
		}
		if strings.Contains(checkText, content) || strings.IndexFunc(content, odd) >= 0 {
			return refuse(fileTokenizer, "the added token %.64q is in texts, or has a space or other odd characters", content)
		}
	}
	var must []string
	if asQwen {
		must = []string{"eos_token", "pad_token", "unk_token"} // for which it has others
	}
	named, err := c.specials(ids, must...)
	if err != nil {
		return err
	}
	for _, s := range slices.Sorted(maps.Keys(named)) {
		if t := added[s]; t.Value("special") != true {
			return refuse(fileTokenizing, "%.64q is no special token of %s", s, fileTokenizer)
		}
	}
	config, err := c.json(fileTokenizing)
	if err != nil {
		return err
	}
	decoder, _ := config.Value("added_tokens_decoder").(*pyjson.Object)
	for i := range decoder.Len() {
		_, v := decoder.Key(i)
		t := v.(*pyjson.Object) // alsoAdded has looked at it
		for key := range fallbackToken {
			if is, ok := t.Get(key); !ok || is != added[t.Value("content").(string)].Value(key) {
				return refuse(fileTokenizing, "the added token %.64q is another in %s", t.Value("content"), fileTokenizer)
			}
		}
	}
	return nil
}
