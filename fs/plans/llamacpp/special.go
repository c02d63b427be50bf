package llamacpp

import (
	"math"
	"slices"
	"strings"

	"ckptfs/formats/pyjson"
)

// special is what a folder says of special tokens and of chat templates, and the merges.
type special struct {
	types []string // of tokens, in the order in which they are looked for
	vocab int64    // how many tokens there are; 0: not said
	ids   named[int64]
	added named[bool]

	merges           []string
	template         any // nil, a string, or a pyjson.Array
	lowercase, strip any
}

// specialTypes are the types that are looked for.
var specialTypes = []string{"bos", "eos", "unk", "sep", "pad", "cls", "mask"}

// named are values by names, in the order in which they were set first.
type named[V any] struct {
	names  []string
	values map[string]V
}

func (n *named[V]) set(name string, v V) {
	if n.values == nil {
		n.values = make(map[string]V)
	}
	if _, ok := n.values[name]; !ok {
		n.names = append(n.names, name)
	}
	n.values[name] = v
}

func (n *named[V]) get(name string) (V, bool) { v, ok := n.values[name]; return v, ok }

// idKeys are the keys of ids of special tokens.
var idKeys = map[string]string{"bos": "bos", "eos": "eos", "unk": "unknown", "sep": "seperator",
	"pad": "padding", "mask": "mask", "eot": "eot", "eom": "eom"}

// add sets the pairs.
func (c *converter) add(s *special) error {
	c.set("tokenizer.ggml.merges", s.merges)
	for _, typ := range s.ids.names {
		if key, ok := idKeys[typ]; ok {
			c.set("tokenizer.ggml."+key+"_token_id", uint32(s.ids.values[typ]))
		}
	}
	for _, typ := range s.added.names {
		if typ == "bos" || typ == "eos" || typ == "sep" {
			c.set("tokenizer.ggml.add_"+typ+"_token", s.added.values[typ])
		}
	}
	if err := c.addTemplate(s.template); err != nil {
		return err
	}
	for _, x := range []struct {
		key string
		v   any
	}{{"lowercase", s.lowercase}, {"strip_accents", s.strip}} {
		if x.v == nil {
			continue
		}
		b, ok := x.v.(bool)
		if !ok {
			return refuse(fileTokenizer, "%s of the normalizer is no truth value", x.key)
		}
		c.set("tokenizer.ggml.normalizer."+x.key, b)
	}
	return nil
}

// addTemplate sets the pairs of chat templates.
func (c *converter) addTemplate(template any) error {
	list, ok := template.(pyjson.Array)
	if !ok {
		s, _ := template.(string)
		c.set("tokenizer.chat_template", s)
		return nil
	}
	var names []string
	whole := ""
	for _, v := range list {
		o, _ := v.(*pyjson.Object)
		n, _ := o.Get("name")
		t, _ := o.Get("template")
		name, ok := n.(string)
		text, is := t.(string)
		if !ok || !is {
			return refuse(fileTokenizing, "a chat template has no name or no text")
		}
		name = strings.Map(func(r rune) rune {
			if r < 0x80 && (letter(byte(r)) || digit(byte(r))) {
				return r
			}
			return '_'
		}, name)
		switch {
		case name == "default":
			whole = text
		case name != "":
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
			c.set("tokenizer.chat_template."+name, text)
		}
	}
	if len(names) > 1 {
		return refuse(fileTokenizing, "it has several named chat templates, which the converter lists in no fixed order")
	}
	c.set("tokenizer.chat_templates", names)
	c.set("tokenizer.chat_template", whole)
	return nil
}

// set sets the id of a type, unless it is set.
func (s *special) set(typ string, id int64) error {
	if id < 0 || id > math.MaxUint32 {
		return refusal("the id of the special token " + typ + " is out of range")
	}
	if _, ok := s.ids.get(typ); !ok && (s.vocab == 0 || id < s.vocab) {
		s.ids.set(typ, id)
	}
	return nil
}

// setValue sets the id that a value is. What is no number counts for none.
func (s *special) setValue(file, typ string, v any) error {
	switch v := v.(type) {
	case bool:
		return refuse(file, "the id of the special token %s is a truth value", typ)
	case pyjson.Number:
		id, ok := v.Int()
		if !ok {
			if strings.ContainsAny(string(v), ".eE") {
				return nil
			}
			return refuse(file, "the id of the special token %s is out of range", typ)
		}
		return s.set(typ, id)
	}
	return nil
}

// load reads what the folder says.
func (c *converter) load(s *special) error {
	tokenizer, err := c.json(fileTokenizer)
	if err != nil {
		return err
	}
	config, err := c.json(fileTokenizing)
	if err != nil {
		return err
	}
	if config != nil { // what follows changes it
		own := new(pyjson.Object)
		for i := range config.Len() {
			own.Set(config.Key(i))
		}
		config = own
	}
	if config.Len() == 0 {
		config = nil // which the converter takes for none
	}
	for _, typ := range append([]string{"cls", "sep"}, s.types...) {
		if v, ok := config.Get(typ + "_token"); ok && kindOf(v)&(kindText|kindDict|kindNull) == 0 {
			return refuse(fileTokenizing, "%s_token is no text", typ)
		}
	}
	if tokenizer.Len() > 0 {
		if err := c.tokenizer(s, tokenizer, config); err != nil {
			return err
		}
	}
	if config != nil {
		if s.template, err = c.templates(config); err != nil {
			return err
		}
		if err := c.tokens(s, tokenizer, config); err != nil {
			return err
		}
	}
	model, err := c.json(fileConfig)
	if err != nil {
		return err
	}
	for _, typ := range s.types {
		v, _ := model.Get(typ + "_token_id")
		if err := s.setValue(fileConfig, typ, v); err != nil {
			return err
		}
	}
	return nil
}

// templates is what the folder has of chat templates.
func (c *converter) templates(config *pyjson.Object) (any, error) {
	var other any
	if p, ok := c.f.Files[fileTemplate]; ok {
		if c.f.Templates {
			return nil, refuse(Templates, "the converter lists what is in it in no fixed order")
		}
		s, err := text(fileTemplate, p)
		if err != nil {
			return nil, err
		}
		other = s
	} else {
		o, err := c.json(fileTemplates)
		if err != nil {
			return nil, err
		}
		other, _ = o.Get("chat_template")
	}
	if v, ok := config.Get("chat_template"); ok {
		other = v
	}
	switch other.(type) {
	case string, pyjson.Array:
		return other, nil
	}
	return nil, nil
}

// tokens sets the ids of the tokens that the tokenizer's config names, and whether they are added.
func (c *converter) tokens(s *special, tokenizer, config *pyjson.Object) error {
	v, _ := tokenizer.Get("added_tokens")
	added, ok := v.(pyjson.Array)
	if v != nil && !ok {
		return refuse(fileTokenizer, "added_tokens is no list")
	}
	for _, typ := range s.types {
		v, _ := config.Get("add_" + typ + "_token")
		if add, ok := v.(bool); ok {
			if _, is := s.added.get(typ); !is {
				s.added.set(typ, add)
			}
		}
		v, _ = config.Get(typ + "_token")
		if o, ok := v.(*pyjson.Object); ok {
			v, _ = o.Get("content")
		}
		content, ok := v.(string)
		if !ok {
			continue
		}
		for _, t := range added {
			o, ok := t.(*pyjson.Object)
			if !ok {
				return refuse(fileTokenizer, "an item of added_tokens is no object")
			}
			if v, _ := o.Get("content"); v == content {
				id, _ := o.Get("id")
				if err := s.setValue(fileTokenizer, typ, id); err != nil {
					return err
				}
				break
			}
		}
	}
	return nil
}
