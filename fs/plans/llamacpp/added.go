package llamacpp

import (
	"maps"
	"slices"

	"ckptfs/formats/pyjson"
)

// Tokens beside those of a model are said of in up to four files.

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
	all := slices.Sorted(maps.Keys(withID))
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
