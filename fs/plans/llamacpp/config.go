package llamacpp

import (
	"math"
	"slices"
	"strings"

	"ckptfs/formats"
	"ckptfs/formats/pyjson"
)

// config is what config.json says, as transformers loads it.
type config struct {
	architecture, model, arch                              string
	vocab, hidden, inner, layers, heads, keyHeads, context int64
	headDim                                                int64 // 0: not said
	rotated                                                int64 // of a head
	experts, expertsUsed, expertInner, sharedInner         int64
	epsilon                                                float32
	rope                                                   *pyjson.Object
}

// architectures are the architectures that are converted: the model_type that their configs have, and
// llama.cpp's name.
var architectures = map[string]struct{ model, arch string }{
	"LlamaForCausalLM":   {"llama", "llama"},
	"MistralForCausalLM": {"mistral", "llama"},
	"Qwen2ForCausalLM":   {"qwen2", "qwen2"},
	"Qwen3ForCausalLM":   {"qwen3", "qwen3"},

	"MixtralForCausalLM":  {"mixtral", "llama"},
	"Qwen2MoeForCausalLM": {"qwen2_moe", "qwen2moe"},
	"Qwen3MoeForCausalLM": {"qwen3_moe", "qwen3moe"},
}

// kind is what values a key of the config may have.
type kind int

const (
	kindBool kind = 1 << iota
	kindInt
	kindFloat
	kindText
	kindNull
	kindInts // a list of them
	kindTexts
	kindDict
)

func kindOf(v any) kind {
	switch v := v.(type) {
	case nil:
		return kindNull
	case bool:
		return kindBool
	case string:
		return kindText
	case *pyjson.Object:
		return kindDict
	case pyjson.Number:
		if _, ok := v.Int(); ok {
			return kindInt
		}
		return kindFloat
	case pyjson.Array:
		all := kindInts | kindTexts
		for _, x := range v {
			switch kindOf(x) {
			case kindInt:
				all &= kindInts
			case kindText:
				all &= kindTexts
			default:
				all = 0
			}
		}
		return all
	}
	return 0
}

// keys are the keys that transformers checks, with what they may be. Where one is something else,
// transformers does not load the config, and the converter takes it as it is.
var keys = map[string]kind{
	"architectures": kindTexts, "model_type": kindText, "transformers_version": kindText | kindNull,
	"output_hidden_states": kindBool | kindNull, "return_dict": kindBool | kindNull, "dtype": kindText,
	"torch_dtype": kindText, "chunk_size_feed_forward": kindInt, "is_encoder_decoder": kindBool,
	"vocab_size": kindInt, "hidden_size": kindInt, "intermediate_size": kindInt, "num_hidden_layers": kindInt,
	"num_attention_heads": kindInt, "num_key_value_heads": kindInt | kindNull, "hidden_act": kindText,
	"max_position_embeddings": kindInt, "initializer_range": kindFloat, "rms_norm_eps": kindFloat,
	"use_cache": kindBool, "pad_token_id": kindInt | kindNull, "bos_token_id": kindInt | kindNull,
	"eos_token_id": kindInt | kindInts | kindNull, "pretraining_tp": kindInt, "tie_word_embeddings": kindBool,
	"rope_parameters": kindDict | kindNull, "rope_scaling": kindDict | kindNull,
	"rope_theta": kindInt | kindFloat, "attention_bias": kindBool, "attention_dropout": kindInt | kindFloat,
	"mlp_bias": kindBool, "head_dim": kindInt | kindNull, "sliding_window": kindInt | kindNull,
	"use_sliding_window": kindBool, "max_window_layers": kindInt, "layer_types": kindTexts,
	"quantization_config": kindNull, "output_attentions": kindBool, "_name_or_path": kindText,
	"_attn_implementation_autoset": kindBool, "_commit_hash": kindText | kindNull,
	"id2label": kindDict | kindNull, "label2id": kindDict | kindNull, "problem_type": kindNull,
}

// foreign are keys that mean something to the converter, or to transformers, which is not known here.
var foreign = strings.Fields(`
	n_layers n_layer num_layers n_ctx n_embd prefix_dense_intermediate_size dense_intermediate_size n_inner
	n_head n_heads n_kv_heads is_causal num_local_experts num_experts n_routed_experts num_experts_per_tok
	num_experts_per_token top_k_experts n_group topk_group score_function scoring_func score_func
	moe_router_activation moe_router_activation_func expert_selection_fn layer_norm_eps layer_norm_epsilon
	norm_epsilon draft_vocab_size transformer_layer_config text_config llm_config lm_config thinker_config
	language_config lfm vision_config audio_config ssm_cfg vocab_size_per_layer_input global_rope_theta
	rope_global_theta rope_theta_global rotary_emb_base local_rope_theta rope_local_theta rope_theta_local
	swa_rope_theta rope_local_base_freq partial_rotary_factor rope_pct rope_percent
	original_max_position_embeddings classifier_pooling mlp_layer_types mtp_layer_types per_layer_config auto_map
	allow_global_per_layer_attribute_access attribute_map base_config_key base_model_ep_plan
	base_model_fsdp_plan base_model_pp_plan base_model_tp_plan convert_rope_params_to_dict
	default_config_fields default_rope_type default_theta dict_dtype_to_str extra_config_files extra_files
	from_dict from_json_file from_pretrained get_config_dict get_mtp_config get_text_config
	ignore_keys_at_rope_validation is_custom_code is_heterogeneous is_remote_code keys_to_ignore_at_inference
	name_or_path nested_rope_parameter_keys num_labels per_layer_attributes push_to_hub
	register_for_auto_class save_pretrained serialize_explicit_per_layer_config standardize_rope_params
	sub_configs sub_configs_defaults to_dict to_diff_dict to_json_file to_json_string update update_from_string
	use_return_dict validate validate_architecture validate_layer_type validate_output_attentions validate_rope
	validate_token_ids`)

// labels refuses what transformers does not take for the labels of a classifier. Else the converter does not
// look at them.
func labels(o *pyjson.Object) error {
	for _, key := range []string{"id2label", "label2id"} {
		v, _ := o.Get(key)
		x, _ := v.(*pyjson.Object)
		var kinds kind
		for i := range x.Len() {
			name, v := x.Key(i)
			kinds |= kindOf(v)
			if _, ok := below(name, math.MaxInt32); !ok && key == "id2label" {
				return refuse(fileConfig, "%.64q is no number of a label", name)
			}
		}
		if x.Len() > 0 && kinds != kindText && (kinds != kindInt || key == "id2label") {
			return refuse(fileConfig, "%s has values of another kind", key)
		}
	}
	return nil
}

// configure reads config.json.
func (c *converter) configure() error {
	o, err := c.json(fileConfig)
	if err != nil {
		return err
	}
	if o == nil {
		return refuse(fileConfig, "it is not there")
	}
	bad := func(format string, args ...any) error { return refuse(fileConfig, format, args...) }
	model, _ := o.Get("model_type")
	c.model, _ = model.(string)
	names, _ := o.Get("architectures")
	list, _ := names.(pyjson.Array)
	if len(list) == 1 {
		c.architecture, _ = list[0].(string)
	}
	if c.architecture == "" {
		return bad("it names no architecture, or several")
	}
	a, ok := architectures[c.architecture]
	if !ok || model != a.model {
		return bad("the architecture %.64q of type %.64q is not converted here", c.architecture, c.model)
	}
	c.arch = a.arch
	for i := range o.Len() {
		key, v := o.Key(i)
		may, known := keys[key]
		if _, has := expertKinds[c.model]; has && !known {
			may, known = expertKeys[key]
		}
		switch {
		case known && kindOf(v)&may == 0:
			return bad("%s has a value of another kind", key)
		case !known && (slices.Contains(foreign, key) || strings.HasPrefix(key, "_")):
			return bad("it is not known what %s changes", key)
		}
	}
	for _, x := range []struct {
		key string
		to  *int64
	}{
		{"vocab_size", &c.vocab}, {"hidden_size", &c.hidden}, {"intermediate_size", &c.inner},
		{"num_hidden_layers", &c.layers}, {"num_attention_heads", &c.heads},
		{"num_key_value_heads", &c.keyHeads}, {"max_position_embeddings", &c.context}, {"head_dim", &c.headDim},
	} {
		v, _ := o.Get(x.key)
		n, is := v.(pyjson.Number)
		if *x.to, _ = n.Int(); is && (*x.to <= 0 || *x.to > math.MaxInt32) {
			return bad("%s is out of range", x.key)
		}
	}
	if c.keyHeads == 0 && a.model == "llama" {
		c.keyHeads = c.heads
	}
	for _, n := range []int64{c.vocab, c.hidden, c.inner, c.layers, c.heads, c.keyHeads, c.context} {
		if n == 0 {
			return bad("a size or a number of heads or layers is missing")
		}
	}
	if c.rotated = c.headDim; c.rotated == 0 {
		c.rotated = c.hidden / c.heads
	}
	if c.arch == "llama" && c.model != "mixtral" {
		c.headDim = c.rotated
	}
	eps, _ := o.Get("rms_norm_eps")
	n, _ := eps.(pyjson.Number)
	if c.epsilon, ok = single(n); !ok {
		return bad("rms_norm_eps is missing or out of range")
	}
	if v, _ := o.Get("initializer_range"); v != nil && a.model == "llama" {
		if x := v.(pyjson.Number).Float(); x < 0 || x > 1 {
			return bad("initializer_range is out of range")
		}
	}
	for _, key := range []string{"dtype", "torch_dtype"} {
		if v, ok := o.Get(key); ok && v != "float32" && v != "float16" && v != "bfloat16" {
			return bad("%s is %v", key, v)
		}
	}
	if v, ok := o.Get("layer_types"); ok {
		list := v.(pyjson.Array)
		if int64(len(list)) != c.layers || c.arch == "llama" ||
			slices.ContainsFunc(list, func(x any) bool { return x != "full_attention" }) {
			return bad("layers are of several types")
		}
	}
	if err := labels(o); err != nil {
		return err
	}
	if err := c.countExperts(o); err != nil {
		return err
	}
	windows, _ := o.Get("use_sliding_window")
	switch {
	case windows == true:
		return bad("it has sliding windows")
	case a.model == "llama" && c.hidden%c.heads != 0:
		return bad("%d is not divisible by %d heads", c.hidden, c.heads)
	case c.arch == "qwen3" && c.headDim == 0:
		return bad("head_dim is missing")
	case c.arch != "llama" && c.has(fileModules):
		return refuse(fileModules, "it is not known what it changes")
	case c.arch == "qwen3" && c.reranks():
		return refuse("the folder", "a model for reranking is not converted here")
	}
	return c.rotate(o)
}

// reranks reports whether the converter may take the model for one that ranks, by what its card or a name
// says.
func (c *converter) reranks() bool {
	for _, s := range []string{c.f.Path, string(c.f.Files[fileCard])} {
		s = strings.ToLower(s)
		if strings.Contains(s, "qwen3-reranker") || strings.Contains(s, "qwen3-vl-reranker") {
			return true
		}
	}
	return false
}

// scalings are the keys that rotary embeddings of a type have, and must have.
var scalings = map[string]struct{ must, may []string }{
	"default": {nil, nil},
	"linear":  {[]string{"factor"}, nil},
	"llama3": {[]string{"factor", "low_freq_factor", "high_freq_factor"},
		[]string{"original_max_position_embeddings"}},
	"yarn": {[]string{"factor"}, []string{"original_max_position_embeddings", "attention_factor", "beta_fast",
		"beta_slow"}},
}

// rotate reads what the config says of rotary embeddings, and completes it.
func (c *converter) rotate(o *pyjson.Object) error {
	bad := func(format string, args ...any) error { return refuse(fileConfig, format, args...) }
	said := new(pyjson.Object)
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		v, _ := o.Get(key)
		if x, _ := v.(*pyjson.Object); x != nil && x.Len() > 0 {
			said = x
			break
		}
	}
	c.rope = new(pyjson.Object)
	for i := range said.Len() {
		c.rope.Set(said.Key(i))
	}
	if _, ok := c.rope.Get("rope_theta"); !ok {
		theta, ok := o.Get("rope_theta")
		if !ok {
			theta = pyjson.Number("10000.0")
			if c.model == "mixtral" {
				theta = pyjson.Number("1000000.0")
			}
		}
		c.rope.Set("rope_theta", theta)
	}
	typ, ok := c.rope.Get("rope_type")
	if old, is := c.rope.Get("type"); !ok && is {
		typ, ok = old, true
	} else if is && old != typ {
		return bad("the type of its rotary embeddings is said twice")
	}
	if !ok {
		typ = "default"
	}
	c.rope.Set("rope_type", typ)
	name, _ := typ.(string)
	keys, known := scalings[name]
	if !known {
		return bad("rotary embeddings of type %v are not converted here", typ)
	}
	if slices.Contains(keys.may, "original_max_position_embeddings") {
		if _, ok := c.rope.Get("original_max_position_embeddings"); !ok {
			v, _ := o.Get("max_position_embeddings")
			c.rope.Set("original_max_position_embeddings", v)
		}
	}
	for _, key := range keys.must {
		if _, ok := c.rope.Get(key); !ok {
			return bad("its rotary embeddings have no %s", key)
		}
	}
	for i := range c.rope.Len() {
		key, v := c.rope.Key(i)
		if key == "type" || key == "rope_type" {
			continue
		}
		n, is := v.(pyjson.Number)
		_, ok := single(n)
		if key == "original_max_position_embeddings" {
			var x int64
			x, ok = n.Int()
			ok = ok && x > 0 && x <= math.MaxInt32
		}
		known := key == "rope_theta" || slices.Contains(keys.must, key) || slices.Contains(keys.may, key)
		if !known || !is || !ok {
			return bad("it is not known what %s of its rotary embeddings changes", key)
		}
	}
	return nil
}

// ropeNumber is a number that the rotary embeddings have.
func (c *converter) ropeNumber(key string) (pyjson.Number, bool) {
	v, _ := c.rope.Get(key)
	n, ok := v.(pyjson.Number)
	return n, ok
}

// parameters sets the pairs that say how the model computes.
func (c *converter) parameters(to formats.DType) {
	whole := func(key string, n int64) { c.set(c.arch+"."+key, uint32(n)) }
	whole("block_count", c.layers)
	whole("context_length", c.context)
	whole("embedding_length", c.hidden)
	whole("feed_forward_length", c.inner)
	whole("attention.head_count", c.heads)
	whole("attention.head_count_kv", c.keyHeads)
	real := func(key, from string) {
		if n, ok := c.ropeNumber(from); ok {
			f, _ := single(n)
			c.set(c.arch+".rope."+key, f)
		}
	}
	switch typ, _ := c.rope.Get("rope_type"); typ {
	case "linear":
		c.set(c.arch+".rope.scaling.type", "linear")
		real("scaling.factor", "factor")
	case "yarn":
		c.set(c.arch+".rope.scaling.type", "yarn")
		real("scaling.factor", "factor")
		n, _ := c.ropeNumber("original_max_position_embeddings")
		original, _ := n.Int()
		whole("rope.scaling.original_context_length", original)
		real("scaling.yarn_attn_factor", "attention_factor")
		real("scaling.yarn_beta_fast", "beta_fast")
		real("scaling.yarn_beta_slow", "beta_slow")
	}
	real("freq_base", "rope_theta")
	c.set(c.arch+".attention.layer_norm_rms_epsilon", c.epsilon)
	if c.experts != 0 {
		whole("expert_count", c.experts)
		whole("expert_used_count", c.expertsUsed)
	}
	if c.headDim != 0 {
		whole("attention.key_length", c.headDim)
		whole("attention.value_length", c.headDim)
	}
	types := map[formats.DType]uint32{formats.F32: 0, formats.F16: 1, formats.BF16: 32}
	c.set("general.file_type", types[to])
	if c.arch == "llama" {
		whole("vocab_size", c.vocab)
		whole("rope.dimension_count", c.rotated)
	}
	if c.expertInner != 0 {
		whole("expert_feed_forward_length", c.expertInner)
	}
	if c.sharedInner != 0 {
		whole("expert_shared_feed_forward_length", c.sharedInner)
	}
}
