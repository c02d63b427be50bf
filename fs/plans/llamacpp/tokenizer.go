package llamacpp

import (
	"slices"
	"strings"
	"unicode/utf8"

	"ckptfs/formats/pyjson"
)

// text is a file as Python reads text.
func text(file string, p []byte) (string, error) {
	if !utf8.Valid(p) {
		return "", refuse(file, "it is not UTF-8")
	}
	return strings.ReplaceAll(strings.ReplaceAll(string(p), "\r\n", "\n"), "\r", "\n"), nil
}

// tokenizer reads what tokenizer.json says of the normalizer, and of the tokens that are added to a text. config is nil, or changes.
func (c *converter) tokenizer(s *special, o, config *pyjson.Object) error {
	v, _ := o.Get("normalizer")
	if n, ok := v.(*pyjson.Object); ok {
		if err := s.normalize(n); err != nil {
			return err
		}
	} else if v != nil {
		return refuse(fileTokenizer, "its normalizer is no object")
	}
	v, _ = o.Get("post_processor")
	if v == nil {
		s.inherit(config)
		return nil
	}
	processor, ok := v.(*pyjson.Object)
	if !ok {
		return refuse(fileTokenizer, "its post_processor is no object")
	}
	return s.process(processor, config)
}

// mergesOf are a tokenizer's merges, each as two tokens with a space between them.
func mergesOf(model *pyjson.Object) ([]string, error) {
	v, _ := model.Get("merges")
	list, _ := v.(pyjson.Array)
	out := make([]string, 0, len(list))
	for _, v := range list {
		switch v := v.(type) {
		case string:
			out = append(out, v)
		case pyjson.Array:
			if len(v) != 2 {
				return nil, refuse(fileTokenizer, "a merge is not of two tokens")
			}
			a, ok := v[0].(string)
			b, is := v[1].(string)
			if !ok || !is {
				return nil, refuse(fileTokenizer, "a merge is not of two tokens")
			}
			out = append(out, strings.ReplaceAll(a, " ", "\u0120")+" "+strings.ReplaceAll(b, " ", "\u0120"))
		default:
			return nil, refuse(fileTokenizer, "a merge is not of two tokens")
		}
		if kindOf(v)&kindText != kindOf(list[0])&kindText {
			return nil, refuse(fileTokenizer, "its merges are written in two ways")
		}
	}
	return out, nil
}

// normalize reads what a normalizer says.
func (s *special) normalize(o *pyjson.Object) error {
	switch typ, _ := o.Get("type"); typ {
	case "Lowercase":
		s.lowercase = true
	case "StripAccents":
		s.strip = true
	case "BertNormalizer":
		if v, ok := o.Get("lowercase"); ok {
			s.lowercase = v
		}
		if v, ok := o.Get("strip_accents"); ok {
			s.strip = v
		}
	case "Sequence":
		v, ok := o.Get("normalizers")
		list, is := v.(pyjson.Array)
		if ok && !is {
			return refuse(fileTokenizer, "normalizers is no list")
		}
		for _, v := range list {
			n, ok := v.(*pyjson.Object)
			if !ok {
				return refuse(fileTokenizer, "a normalizer is no object")
			}
			if err := s.normalize(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// said are the contents that the config has for special tokens, as Python tells true from false: "" is none.
type said struct{ bos, cls, eos, sep string }

// inherit takes for the first and the last token what the config calls cls and sep.
func (s *special) inherit(config *pyjson.Object) (out said) {
	get := func(key string) string {
		v, _ := config.Get(key)
		if o, ok := v.(*pyjson.Object); ok && o.Len() > 0 {
			return "\x00" // an object is no content that a processor can name
		}
		text, _ := v.(string)
		return text
	}
	out = said{get("bos_token"), get("cls_token"), get("eos_token"), get("sep_token")}
	if config != nil && out.bos == "" && out.cls != "" {
		v, _ := config.Get("cls_token")
		config.Set("bos_token", v)
		out.bos = out.cls
	}
	if config != nil && out.eos == "" && out.sep != "" {
		v, _ := config.Get("sep_token")
		config.Set("eos_token", v)
		out.eos = out.sep
	}
	return out
}

// process reads which tokens a post-processor adds to a text.
func (s *special) process(o, config *pyjson.Object) error {
	known := s.inherit(config)
	list := pyjson.Array{o}
	if v, ok := o.Get("processors"); ok {
		if list, ok = v.(pyjson.Array); !ok {
			return refuse(fileTokenizer, "processors is no list")
		}
	}
	for _, v := range list {
		p, ok := v.(*pyjson.Object)
		if !ok {
			return refuse(fileTokenizer, "a post-processor is no object")
		}
		switch typ, _ := p.Get("type"); typ {
		case "ByteLevel":
			for _, typ := range []string{"bos", "eos"} {
				if _, ok := s.added.get(typ); !ok {
					s.added.set(typ, false)
				}
			}
		case "RobertaProcessing":
			return refuse(fileTokenizer, "a post-processor of type RobertaProcessing is not read here")
		case "TemplateProcessing":
			if err := s.template1(p, config, &known); err != nil {
				return err
			}
		}
	}
	return nil
}

// item is an item of a template: a special token, or a sequence.
func item(v any) (token, sequence string, err error) {
	o, ok := v.(*pyjson.Object)
	if !ok {
		return "", "", refuse(fileTokenizer, "an item of a template is no object")
	}
	for key, to := range map[string]*string{"SpecialToken": &token, "Sequence": &sequence} {
		v, ok := o.Get(key)
		if !ok {
			continue
		}
		x, ok := v.(*pyjson.Object)
		id, _ := x.Get("id")
		if *to, _ = id.(string); !ok || id == nil || *to == "" {
			return "", "", refuse(fileTokenizer, "an item of a template has no id")
		}
	}
	return token, sequence, nil
}

// items are those of a template.
func items(p *pyjson.Object, key string) (tokens, sequences []string, err error) {
	v, ok := p.Get(key)
	list, is := v.(pyjson.Array)
	if ok && !is {
		return nil, nil, refuse(fileTokenizer, "a template is no list")
	}
	for _, v := range list {
		t, s, err := item(v)
		if err != nil {
			return nil, nil, err
		}
		tokens, sequences = append(tokens, t), append(sequences, s)
	}
	return tokens, sequences, nil
}

// template1 reads which tokens a template puts before, behind and between texts.
func (s *special) template1(p, config *pyjson.Object, known *said) error {
	single, _, err := items(p, "single")
	if err != nil {
		return err
	}
	first, last := "", ""
	if len(single) > 1 {
		first, last = single[0], single[len(single)-1]
	}
	if first != "" {
		if config == nil {
			known.bos = first
		} else if first != known.bos && first != known.cls {
			if known.bos == "" {
				known.bos = first
				config.Set("bos_token", first)
			}
			if known.cls == "" {
				known.cls = first
				config.Set("cls_token", first)
			}
		}
		s.added.set("bos", first == known.bos || first == known.cls)
	}
	if last != "" {
		if config == nil {
			known.eos = last
		} else if last != known.eos {
			for _, typ := range []string{"eot", "eom"} {
				if !slices.Contains(s.types, typ) {
					s.types = append(slices.Clone(s.types), typ)
					v, _ := config.Get("eos_token")
					config.Set(typ+"_token", v)
					break
				}
			}
			known.eos = last
			config.Set("eos_token", last)
		}
		s.added.set("eos", last == known.eos)
	}
	tokens, sequences, err := items(p, "pair")
	if err != nil || len(tokens) == 0 {
		return err
	}
	if first != "" && tokens[0] == first {
		tokens, sequences = tokens[1:], sequences[1:]
	}
	if n := len(tokens); last != "" && n > 0 && tokens[n-1] == last {
		tokens, sequences = tokens[:n-1], sequences[:n-1]
	}
	n := len(tokens)
	if n < 3 || sequences[0] != "A" || sequences[n-1] != "B" {
		return nil
	}
	between := tokens[1 : n-1]
	separates := func(t string) bool { return t != "" && (t == known.sep || t == known.eos) }
	add := separates(between[0]) && last == ""
	if len(between) == 2 && separates(between[1]) {
		add = true
	}
	s.added.set("sep", add)
	if add && known.sep == "" && config != nil {
		config.Set("sep_token", known.eos)
	}
	return nil
}
