package llamacpp

import (
	"fmt"
	"math"
	"path"
	"regexp"
	"strings"

	"ckptfs/formats/modelcard"
	"ckptfs/formats/pyjson"
)

// about is what is said of a model as a whole. What is nil is not said.
type about struct {
	name, author, version, organization, finetune, basename, description, size *string

	sourceURL, sourceDOI, sourceUUID, sourceRepo, license, licenseName, licenseLink *string

	bases, datasets       []*pyjson.Object
	hasBases, hasDatasets bool // which says that they are said, if there are none
	tags, languages       []string
}

// general sets the pairs general.*: those of the generation config, then those of the card, else of the
// config's _name_or_path, else of the folder's name.
func (c *converter) general(n numbers) error {
	total := n.total
	if err := c.sampling(); err != nil {
		return err
	}
	var a about
	if err := c.card(&a, total); err != nil {
		return err
	}
	config, err := c.json(fileConfig)
	if err != nil {
		return err
	}
	if v, _ := config.Get("_name_or_path"); v != nil {
		s, ok := v.(string)
		if !ok || !plain(s) {
			return refuse(fileConfig, "_name_or_path is no plain text")
		}
		if strings.Count(s, "/") <= 1 {
			a.fill(idOf(s, total))
		}
	}
	name := path.Base(c.f.Path)
	if !plain(name) {
		return refuse("the folder's name", "it is not ASCII, and general.name is made of it")
	}
	a.fill(idOf(name, total))
	if a.size == nil && total > 0 {
		a.size = some(sizeLabel(n))
	}
	for _, x := range []struct {
		key string
		v   *string
	}{
		{"name", a.name}, {"author", a.author}, {"version", a.version}, {"organization", a.organization},
		{"finetune", a.finetune}, {"basename", a.basename}, {"description", a.description},
		{"size_label", a.size}, {"license", a.license}, {"license.name", a.licenseName},
		{"license.link", a.licenseLink}, {"source.url", a.sourceURL}, {"source.doi", a.sourceDOI},
		{"source.uuid", a.sourceUUID}, {"source.repo_url", a.sourceRepo},
	} {
		if x.v != nil {
			c.set("general."+x.key, *x.v)
		}
	}
	if a.hasBases {
		if err := c.relatives("base_model", a.bases); err != nil {
			return err
		}
	}
	if a.hasDatasets {
		if err := c.relatives("dataset", a.datasets); err != nil {
			return err
		}
	}
	c.set("general.tags", a.tags)
	c.set("general.languages", a.languages)
	return nil
}

// fill takes what is not said yet from an id.
func (a *about) fill(x id) {
	titled := func(s *string) *string {
		if s == nil {
			return nil
		}
		return some(title(*s))
	}
	for _, f := range []struct {
		to   **string
		from *string
	}{
		{&a.name, titled(x.name)}, {&a.organization, titled(x.org)}, {&a.basename, x.basename},
		{&a.finetune, x.finetune}, {&a.version, x.version}, {&a.size, x.size},
	} {
		if *f.to == nil {
			*f.to = f.from
		}
	}
}

// sampling sets what the generation config says.
func (c *converter) sampling() error {
	o, err := c.json(fileGeneration)
	if err != nil || o == nil {
		return err
	}
	if v, _ := o.Get("sequence"); v != nil {
		s, ok := v.(string)
		if !ok {
			return refuse(fileGeneration, "sequence is no text")
		}
		c.set("general.sampling.sequence", s)
	}
	for _, x := range []struct {
		from, to string
		whole    bool
	}{
		{"top_k", "top_k", true}, {"top_p", "top_p", false}, {"min_p", "min_p", false},
		{"xtc_probability", "xtc_probability", false}, {"xtc_threshold", "xtc_threshold", false},
		{"temperature", "temp", false}, {"penalty_last_n", "penalty_last_n", true},
		{"repetition_penalty", "penalty_repeat", false}, {"mirostat", "mirostat", true},
		{"mirostat_tau", "mirostat_tau", false}, {"mirostat_eta", "mirostat_eta", false},
	} {
		if _, ok := o.Get("penalty_repeat"); ok && x.from == "repetition_penalty" {
			x.from = "penalty_repeat"
		}
		v, _ := o.Get(x.from)
		if v == nil {
			continue
		}
		n, ok := v.(pyjson.Number)
		if x.whole {
			i, is := n.Int()
			if !ok || !is || int64(int32(i)) != i {
				return refuse(fileGeneration, "%s is no int32", x.from)
			}
			c.set("general.sampling."+x.to, int32(i))
			continue
		}
		f, is := single(n)
		if !ok || !is {
			return refuse(fileGeneration, "%s is no float32", x.from)
		}
		c.set("general.sampling."+x.to, f)
	}
	return nil
}

// single is a number in single precision.
func single(n pyjson.Number) (float32, bool) {
	f := float32(n.Float())
	return f, n != "" && !math.IsInf(float64(f), 0)
}

// card reads what the model card says.
func (c *converter) card(a *about, total int64) error {
	p, ok := c.f.Files[fileCard]
	if !ok {
		return nil
	}
	o, err := modelcard.Parse(p)
	if err != nil {
		return refuse(fileCard, "%v", err)
	}
	for _, x := range []struct {
		to   **string
		keys []string // in the order of precedence
	}{
		{&a.name, []string{"name", "model_name"}},
		{&a.author, []string{"author", "model_author", "model_creator"}},
		{&a.version, []string{"version", "model_version"}},
		{&a.organization, []string{"organization", "model_organization"}},
		{&a.description, []string{"description", "model_description"}},
		{&a.finetune, []string{"finetune", "model_finetune"}},
		{&a.basename, []string{"basename", "model_basename", "model_type"}},
		{&a.size, []string{"size_label", "model_size_label"}},
		{&a.sourceURL, []string{"url", "model_url"}},
		{&a.sourceDOI, []string{"doi", "model_doi"}},
		{&a.sourceUUID, []string{"uuid", "model_uuid"}},
		{&a.sourceRepo, []string{"repo_url", "model_repo_url"}},
		{&a.license, []string{"license"}},
		{&a.licenseName, []string{"license_name"}},
		{&a.licenseLink, []string{"license_link"}},
	} {
		for _, key := range x.keys {
			v, _ := o.Get(key)
			if list, ok := v.(pyjson.Array); ok && key == "license" {
				s, err := texts(key, list)
				if err != nil {
					return err
				}
				v = strings.Join(s, ",")
			}
			if v == nil || *x.to != nil {
				continue
			}
			s, ok := v.(string)
			if !ok {
				return refuse(fileCard, "%s is no text in one line", key)
			}
			*x.to = &s
		}
	}
	a.bases, a.hasBases, err = related(o, total, "base_model", "base_models", "base_model_sources")
	if err != nil {
		return err
	}
	a.datasets, a.hasDatasets, err = related(o, total, "datasets", "dataset", "dataset_sources")
	if err != nil {
		return err
	}
	if a.tags, err = listed(o, "tags", "pipeline_tag"); err != nil {
		return err
	}
	a.languages, err = listed(o, "languages", "language")
	return err
}

// texts are the items of a list, each of which has to be text.
func texts(key string, list pyjson.Array) (out []string, err error) {
	for _, v := range list {
		s, ok := v.(string)
		if !ok {
			return nil, refuse(fileCard, "an item of %s is no text in one line", key)
		}
		out = append(out, s)
	}
	return out, nil
}

// listed are the items of these keys, one behind the other. What is neither a list nor text counts for none.
func listed(o *pyjson.Object, keys ...string) (out []string, err error) {
	for _, key := range keys {
		switch v, _ := o.Get(key); v := v.(type) {
		case string:
			out = append(out, v)
		case modelcard.Other:
			return nil, refuse(fileCard, "%s is no text in one line", key)
		case pyjson.Array:
			s, err := texts(key, v)
			if err != nil {
				return nil, err
			}
			out = append(out, s...)
		}
	}
	return out, nil
}

var hub = regexp.MustCompile(`^https?://huggingface.co/([^/]+/[^/]+)$`)

// related are the models or datasets that the first of these keys names which is there.
func related(o *pyjson.Object, total int64, keys ...string) (out []*pyjson.Object, is bool, err error) {
	for _, key := range keys {
		v, ok := o.Get(key)
		if !ok {
			continue
		}
		var list pyjson.Array
		switch v := v.(type) {
		case nil, *pyjson.Object:
		case string:
			list = pyjson.Array{v}
		case pyjson.Array:
			list = v
		default:
			return nil, false, refuse(fileCard, "%s is no text in one line", key)
		}
		for _, v := range list {
			switch v := v.(type) {
			case *pyjson.Object:
				out = append(out, v)
			case string:
				if !plain(v) {
					return nil, false, refuse(fileCard, "%q of %s is not ASCII", v, key)
				}
				out = append(out, relative(v, total))
			default:
				return nil, false, refuse(fileCard, "an item of %s is no text in one line", key)
			}
		}
		return out, true, nil
	}
	return nil, false, nil
}

// relative is what an id, or an address, says of a model or a dataset.
func relative(s string, total int64) *pyjson.Object {
	o := new(pyjson.Object)
	say := func(x id, repo bool) {
		o.Set("name", title(*x.name))
		if x.org != nil {
			o.Set("organization", title(*x.org))
		}
		if x.version != nil {
			o.Set("version", *x.version)
		}
		if repo && x.org != nil {
			o.Set("repo_url", "https://huggingface.co/"+*x.org+"/"+*x.name)
		}
	}
	for _, scheme := range []string{"http://", "https://", "ssh://"} {
		if strings.HasPrefix(s, scheme) {
			o.Set("repo_url", s)
			if m := hub.FindStringSubmatch(s); m != nil {
				say(idOf(m[1], total), false)
			}
			return o
		}
	}
	say(idOf(s, total), true)
	return o
}

// relatives sets the pairs of models or datasets.
func (c *converter) relatives(kind string, of []*pyjson.Object) error {
	c.set("general."+kind+".count", uint32(len(of)))
	for i, o := range of {
		for _, key := range []string{"name", "author", "version", "organization", "description", "url", "doi",
			"uuid", "repo_url"} {
			v, ok := o.Get(key)
			if !ok {
				continue
			}
			s, is := v.(string)
			if v != nil && !is {
				return refuse(fileCard, "the %s of a %s is no text in one line", key, kind)
			}
			c.set(fmt.Sprintf("general.%s.%d.%s", kind, i, key), s)
		}
	}
	return nil
}
