package llamacpp

import (
	"fmt"
	"testing"
)

func (x id) String() string {
	s := func(p *string) string {
		if p == nil {
			return "-"
		}
		return *p
	}
	return fmt.Sprintf("%s|%s|%s|%s|%s|%s", s(x.name), s(x.org), s(x.basename), s(x.finetune),
		s(x.version), s(x.size))
}

// What an id says is what gguf-py's Metadata.get_model_id_components says, but of what is not ASCII.
func TestNames(t *testing.T) {
	for _, c := range names {
		if got := idOf(c.id, c.total).String(); got != c.want {
			t.Errorf("%q of %d: %s, want %s", c.id, c.total, got, c.want)
		}
		if got := title(c.id); got != c.title {
			t.Errorf("%q: %q, want %q", c.id, got, c.title)
		}
	}
	for n, want := range sizes {
		if got := sizeLabel(numbers{total: n}); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

var names = []struct {
	id          string
	total       int64
	want, title string
}{
	{"", 0, "|-|-|-|-|-", ""},
	{"", 7000000000, "|-|-|-|-|-", ""},
	{" a b", 0, " a b|-|-|-|-|-", "A B"},
	{" a b", 7000000000, " a b|-|-|-|-|-", "A B"},
	{"-", 0, "-|-|-|-|-|-", ""},
	{"-", 7000000000, "-|-|-|-|-|-", ""},
	{"a/b", 0, "b|a|-|-|-|-", "A/B"},
	{"a/b", 7000000000, "b|a|-|-|-|-", "A/B"},
	{"./x", 0, "x|-|-|-|-|-", "./X"},
	{"./x", 7000000000, "x|-|-|-|-|-", "./X"},
	{"../y", 0, "y|-|-|-|-|-", "../Y"},
	{"../y", 7000000000, "y|-|-|-|-|-", "../Y"},
	{"a/b/c", 0, "b/c|a|-|-|-|-", "A/B/C"},
	{"a/b/c", 7000000000, "b/c|a|-|-|-|-", "A/B/C"},
	{"/x", 0, "x||-|-|-|-", "/X"},
	{"/x", 7000000000, "x||-|-|-|-", "/X"},
	{"meta-llama/Llama-2-7b-chat-hf", 0, "Llama-2-7b-chat-hf|meta-llama|Llama-2|chat-hf|-|7B", "Meta llama/Llama 2 7b Chat Hf"},
	{"meta-llama/Llama-2-7b-chat-hf", 7000000000, "Llama-2-7b-chat-hf|meta-llama|Llama-2|chat-hf|-|7B", "Meta llama/Llama 2 7b Chat Hf"},
	{"mistralai/Mixtral-8x7B-Instruct-v0.1", 0, "Mixtral-8x7B-Instruct-v0.1|mistralai|Mixtral|Instruct|v0.1|8x7B", "mistralai/Mixtral 8x7B Instruct v0.1"},
	{"mistralai/Mixtral-8x7B-Instruct-v0.1", 7000000000, "Mixtral-8x7B-Instruct-v0.1|mistralai|Mixtral|Instruct|v0.1|8x7B", "mistralai/Mixtral 8x7B Instruct v0.1"},
	{"bigscience/bloom-7b1", 0, "bloom-7b1|bigscience|bloom|-|-|7.1B", "Bigscience/Bloom 7b1"},
	{"bigscience/bloom-7b1", 7000000000, "bloom-7b1|bigscience|bloom|-|-|7.1B", "Bigscience/Bloom 7b1"},
	{"tiny 7b", 0, "tiny 7b|-|-|-|-|-", "Tiny 7b"},
	{"tiny 7b", 7000000000, "tiny 7b|-|-|-|-|-", "Tiny 7b"},
	{"1", 0, "1|-|-|-|1|-", "1"},
	{"1", 7000000000, "1|-|-|-|1|-", "1"},
	{"checkpoint-1000", 0, "checkpoint-1000|-|checkpoint|-|1000|-", "Checkpoint 1000"},
	{"checkpoint-1000", 7000000000, "checkpoint-1000|-|checkpoint|-|1000|-", "Checkpoint 1000"},
	{"mini-F16-dpo-7-IQ3_XXS", 0, "mini-F16-dpo-7-IQ3_XXS|-|mini|dpo-IQ3_XXS|7|-", "Mini F16 Dpo 7 IQ3_XXS"},
	{"xxl", 7000000000, "xxl|-|-|-|-|-", "Xxl"},
	{"./-IQ3_XXS-xxl-128k-XL-v0.3", 168000, "-IQ3_XXS-xxl-128k-XL-v0.3|-|IQ3_XXS-xxl|XL|v0.3|128K", "./ IQ3_XXS Xxl 128k XL v0.3"},
	{"org/chat-chat-7b1-chat", 0, "chat-chat-7b1-chat|org|chat|chat-chat|-|7.1B", "Org/Chat Chat 7b1 Chat"},
	{"Org-X/1M-o1-v2-0_5b-4k", 7000000000, "1M-o1-v2-0_5b-4k|Org-X|-|1M-o1-0.5b-4k|v2|-", "Org X/1M O1 v2 0_5b 4k"},
	{"GPT-q4_0", 168000, "GPT-q4_0|-|-|-|-|-", "GPT Q4_0"},
	{"32K-chat-2507-r1-T-100T", 0, "32K-chat-2507-r1-T-100T|-|-|32K-chat-r1-T|2507|100T", "32K Chat 2507 R1 T 100T"},
	{"xxl-3.1", 7000000000, "xxl-3.1|-|xxl|-|3.1|-", "Xxl 3.1"},
	{"7", 168000, "7|-|-|-|7|-", "7"},
	{"org/7", 0, "7|org|-|-|7|-", "Org/7"},
	{"Org-X/hf", 7000000000, "hf|Org-X|-|-|-|-", "Org X/hf"},
	{"./T-Llama-bf16-v0.3-3.1-3.1", 168000, "T-Llama-bf16-v0.3-3.1-3.1|-|T-Llama|-|v0.3-3.1-3.1|-", "./T Llama Bf16 v0.3 3.1 3.1"},
	{"/7B-4k-7b-7B-2", 0, "7B-4k-7b-7B-2||-|7B|2|4K-7B", "/7B 4k 7b 7B 2"},
	{"/base-SFT-v2", 7000000000, "base-SFT-v2||base-SFT|-|v2|-", "/Base SFT v2"},
	{"bf16-e5-o1-dpo-chat", 168000, "bf16-e5-o1-dpo-chat|-|-|e5-o1-dpo-chat|-|-", "Bf16 E5 O1 Dpo Chat"},
	{"F16-7b1-SFT-e5-o1", 0, "F16-7b1-SFT-e5-o1|-|-|SFT-e5-o1|-|7.1B", "F16 7b1 SFT E5 O1"},
	{"Q4_K-x-F16-x-2-IQ3_XXS", 7000000000, "Q4_K-x-F16-x-2-IQ3_XXS|-|-|x-x-IQ3_XXS|2|-", "Q4_K X F16 X 2 IQ3_XXS"},
	{"org/Mistral", 168000, "Mistral|org|-|-|-|-", "org/Mistral"},
	{"3.1-IQ3_XXS-x-Mistral-7b1-GPT", 0, "3.1-IQ3_XXS-x-Mistral-7b1-GPT|-|3.1-IQ3_XXS-x-Mistral|GPT|-|7.1B", "3.1 IQ3_XXS X Mistral 7b1 GPT"},
	{"7B", 7000000000, "7B|-|-|7B|-|-", "7B"},
	{"Org-X/F16", 168000, "F16|Org-X|-|-|-|-", "Org X/F16"},
	{"./Mistral-XL-7b1-o1-a.b", 0, "Mistral-XL-7b1-o1-a.b|-|Mistral-XL|o1-a.b|-|7.1B", "./Mistral XL 7b1 O1 A.B"},
	{"base-4k-x-x-IQ3_XXS-3.1", 7000000000, "base-4k-x-x-IQ3_XXS-3.1|-|base|4k-x-x-IQ3_XXS|3.1|-", "Base 4k X X IQ3_XXS 3.1"},
	{"./7-it-tiny", 168000, "7-it-tiny|-|-|-|-|-", "./7 It Tiny"},
	{"1.1B-", 0, "1.1B-|-|-|1.1B|-|-", "1.1B"},
	{"SFT", 7000000000, "SFT|-|-|-|-|-", "SFT"},
	{"/4k-XL-Instruct-3.1-7B-1.1B", 168000, "4k-XL-Instruct-3.1-7B-1.1B||-|4k-Instruct-7b-1.1b|3.1|XL", "/4K XL Instruct 3.1 7B 1.1B"},
	{"a.b-base-F16-v2-b32-7b", 0, "a.b-base-F16-v2-b32-7b|-|a.b-base|b32|v2|7B", "A.B Base F16 v2 B32 7b"},
	{"chat-dpo-32K", 7000000000, "chat-dpo-32K|-|chat-dpo|32k|-|-", "Chat Dpo 32K"},
	{"xxl-b32-small-4k-Llama", 168000, "xxl-b32-small-4k-Llama|-|xxl-b32|4k-Llama|-|small", "Xxl B32 Small 4k Llama"},
	{"mini-o1-0_5b-o1-7b", 0, "mini-o1-0_5b-o1-7b|-|mini-o1|o1|-|0.5B-7B", "Mini O1 0_5b O1 7b"},
	{"Org-X/GPT-1M-small-dpo", 7000000000, "GPT-1M-small-dpo|Org-X|GPT|1m-dpo|-|small", "Org X/GPT 1M Small Dpo"},
	{"1.1B-", 168000, "1.1B-|-|-|1.1B|-|-", "1.1B"},
	{"fp16-LoRA-q4_0-GPT-7b-fp16", 0, "fp16-LoRA-q4_0-GPT-7b-fp16|-|-|LoRA-GPT|-|7B", "Fp16 LoRA Q4_0 GPT 7b Fp16"},
	{"7b1-7b-a.b-e5-r1", 7000000000, "7b1-7b-a.b-e5-r1|-|-|7b1-a.b-e5-r1|-|7B", "7b1 7b A.B E5 R1"},
	{"0_5b-chat-xxl-2-Mistral", 168000, "0_5b-chat-xxl-2-Mistral|-|-|0_5b-chat-Mistral|2|xxl", "0_5b Chat Xxl 2 Mistral"},
	{"7b-A3B-7b-Mistral-e5", 0, "7b-A3B-7b-Mistral-e5|-|-|7b-Mistral-e5|-|A3B-7B", "7b A3B 7b Mistral E5"},
	{"k2-8x7B-fp16", 7000000000, "k2-8x7B-fp16|-|k2|-|-|8x7B", "K2 8x7B Fp16"},
	{"x", 168000, "x|-|-|-|-|-", "X"},
	{"T", 0, "T|-|-|-|-|-", "T"},
	{"Mistral", 7000000000, "Mistral|-|-|-|-|-", "Mistral"},
	{"./base-bf16-mini-2-hf", 168000, "base-bf16-mini-2-hf|-|base|hf|2|mini", "./Base Bf16 Mini 2 Hf"},
	{"k2-fp16-Vision-SFT-3.1-small", 0, "k2-fp16-Vision-SFT-3.1-small|-|k2|Vision-SFT|3.1|small", "K2 Fp16 Vision SFT 3.1 Small"},
	{"x-7b1-3.1", 7000000000, "x-7b1-3.1|-|x|-|3.1|7.1B", "X 7b1 3.1"},
	{"/7-2-2-xxl", 168000, "7-2-2-xxl||7-2-2|-|-|xxl", "/7 2 2 Xxl"},
	{"./small", 0, "small|-|-|-|-|-", "./Small"},
}

var sizes = map[int64]string{
	1:             "0.00K",
	9:             "0.01K",
	99:            "0.10K",
	100:           "0.10K",
	499:           "0.50K",
	500:           "0.50K",
	1500:          "1.5K",
	2500:          "2.5K",
	9950:          "10K",
	9949:          "10K",
	9999:          "10K",
	99999:         "100K",
	168000:        "168K",
	999999:        "1000K",
	1000000:       "1000K",
	1000001:       "1.0M",
	1500000:       "1.5M",
	9960000:       "10M",
	124439808:     "124M",
	1000000000:    "1000M",
	1000000001:    "1.0B",
	1235814400:    "1.2B",
	7241732096:    "7.2B",
	70553706496:   "71B",
	1000000000001: "1.0T",
	1500000000000: "1.5T",
}
