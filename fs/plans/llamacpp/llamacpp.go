// Package llamacpp says what llama.cpp's convert_hf_to_gguf.py makes of the folder of a model, for
//
//	convert_hf_to_gguf.py FOLDER --outtype f32|f16|bf16 --outfile NAME.gguf
//
// in the version of the sdist of llama-cpp-python 0.3.36, with transformers 5.23: all pairs of metadata with
// their order, and for each tensor which tensor of the folder it is, in which type, and whether its rows are
// permuted. It reads what the folder says of the model, and no tensor.
//
// # What is converted
//
//	LlamaForCausalLM, MistralForCausalLM     architecture llama
//	Qwen2ForCausalLM                         architecture qwen2
//	Qwen3ForCausalLM                         architecture qwen3
//	MixtralForCausalLM                       architecture llama, with experts (experts.go)
//	Qwen2MoeForCausalLM                      architecture qwen2moe
//	Qwen3MoeForCausalLM                      architecture qwen3moe
//
// The weights are safetensors files of F32, F16 or BF16. The vocabulary is a SentencePiece model
// (tokenizer.model), what transformers has saved of one (fallback.go), or a byte-level BPE (tokenizer.json):
// that of Llama 3 or Qwen 2 with any tokens added (bpe.go), or another that the converter knows (bytelevel.go).
//
// # What is refused
//
// All that is not known to the last byte (ErrRefused): other architectures, quantised weights, a key of the
// config that the converter reads and this package does not, a tensor of another name, scaled rotary
// embeddings but for linear, yarn and known ones of llama3, front matter that package modelcard does not
// read, names that are not ASCII. So is what the converter fails on, as far as it is known.
//
// Files are untrusted. Each has 64 MiB at most, JSON 3,000,000 values.
package llamacpp

import (
	"errors"
	"fmt"
	"strings"

	"ckptfs/formats"
	"ckptfs/formats/gguf"
	"ckptfs/formats/pyjson"
)

// ErrRefused: what the converter makes of a folder is not known here. The error that wraps it names the file
// and the reason.
var ErrRefused = errors.New("it is not known what llama.cpp makes of it")

// refusal is such an error. Its text is the reason alone.
type refusal string

func (r refusal) Error() string        { return string(r) }
func (r refusal) Is(target error) bool { return target == ErrRefused }

// refuse says why, beginning with the file.
func refuse(file, format string, args ...any) error {
	return refusal(file + ": " + fmt.Sprintf(format, args...))
}

const (
	// MaxFile bounds a file of the folder but for weights, in bytes.
	MaxFile = 64 << 20

	maxValues = 3_000_000
)

// The files of a folder that the converter reads beside the weights, or asks for.
const (
	fileConfig     = "config.json"
	fileIndex      = "model.safetensors.index.json"
	fileGeneration = "generation_config.json"
	fileCard       = "README.md"
	filePieces     = "tokenizer.model"
	fileTokenizer  = "tokenizer.json"
	fileTokenizing = "tokenizer_config.json"
	fileAdded      = "added_tokens.json"
	fileSpecial    = "special_tokens_map.json"
	fileTemplate   = "chat_template.jinja"
	fileTemplates  = "chat_template.json"
	fileMerges     = "merges.txt"
	fileVocab      = "vocab.json"
	fileQuantised  = "hf_quant_config.json"
	fileTekken     = "tekken.json"
	fileModules    = "modules.json"
)

// Files are the names of the files beside the weights that Convert has to know of.
var Files = []string{fileConfig, fileIndex, fileGeneration, fileCard, filePieces, fileTokenizer,
	fileTokenizing, fileAdded, fileSpecial, fileTemplate, fileTemplates, fileMerges, fileVocab, fileQuantised,
	fileTekken, fileModules}

// Templates is a folder of further chat templates.
const Templates = "additional_chat_templates"

// Config is the file that a folder of a model has.
const Config = fileConfig

// IsPart reports whether the name is one of a file of weights.
func IsPart(name string) bool {
	return strings.HasPrefix(name, "model") && strings.HasSuffix(name, ".safetensors")
}

// Folder is what is known of the folder of a model.
type Folder struct {
	Path      string            // below the mount; its last part is a name of the model
	Files     map[string][]byte // those of Files that are there
	Parts     []Part            // the files of weights
	Templates bool              // there is the folder Templates
}

// Part is a file of weights.
type Part struct {
	Name    string
	Tensors []formats.Tensor
}

// Model is a file that is converted.
type Model struct {
	Pairs   []gguf.Pair
	Tensors []Tensor
}

// Tensor is a tensor of the file.
type Tensor struct {
	gguf.Entry
	Part, Index int   // which tensor of the folder it is; Index -1: it is Data
	Heads       int64 // the rows of each of so many heads are permuted for rotary embeddings; 0: they are not
	Half        int   // which half of the rows of each expert it is, 1 or 2; 0: all
	Data        []float32
	Experts     []Place // not nil: it is these tensors one behind the other
}

// Refusal is why a folder whose config.json says this has no file, whatever else is in it; nil: the rest
// decides. path is as in Folder.
func Refusal(path string, config []byte) error {
	c := converter{f: &Folder{Path: path, Files: map[string][]byte{fileConfig: config}},
		read: make(map[string]*pyjson.Object)}
	return c.configure()
}

// Convert says what the converter makes of a folder in a type, F32, F16 or BF16. Errors wrap ErrRefused.
func Convert(f *Folder, to formats.DType) (*Model, error) {
	c := converter{f: f, read: make(map[string]*pyjson.Object)}
	for name, p := range f.Files {
		if len(p) > MaxFile {
			return nil, refuse(name, "it has %d bytes, more than %d", len(p), MaxFile)
		}
	}
	if c.has(fileQuantised) {
		return nil, refuse(fileQuantised, "the weights are quantised")
	}
	if err := c.configure(); err != nil {
		return nil, err
	}
	tensors, err := c.tensors(to)
	if err != nil {
		return nil, err
	}
	c.set("general.architecture", c.arch)
	c.set("general.type", "model")
	if err := c.general(count(tensors)); err != nil {
		return nil, err
	}
	c.parameters(to)
	c.set("general.quantization_version", uint32(2))
	if err := c.vocabulary(); err != nil {
		return nil, err
	}
	return &Model{c.pairs, tensors}, nil
}

// numbers is how many numbers a model has.
type numbers struct {
	total   int64
	active  int64 // of those of experts, those of one expert count
	experts int64 // in a layer; 0: it has none
}

func count(tensors []Tensor) (n numbers) {
	for i := range tensors {
		t := formats.Tensor{DType: tensors[i].DType, Shape: tensors[i].Shape}
		all := t.NumElements() // of files that are there
		n.total += all
		if strings.Contains(tensors[i].Name, "_exps.") {
			n.experts = t.Shape[0]
			all /= n.experts
		}
		n.active += all
	}
	return n
}

// converter converts one folder.
type converter struct {
	f    *Folder
	read map[string]*pyjson.Object // by file
	config

	pairs []gguf.Pair
	at    map[string]int
}

// set sets a pair. One that was set keeps its place. Empty strings and lists are left out.
func (c *converter) set(key string, v any) {
	switch v := v.(type) {
	case string:
		if v == "" {
			return
		}
	case []string:
		if len(v) == 0 {
			return
		}
	}
	if i, ok := c.at[key]; ok {
		c.pairs[i].Value = v
		return
	}
	if c.at == nil {
		c.at = make(map[string]int)
	}
	c.at[key] = len(c.pairs)
	c.pairs = append(c.pairs, gguf.Pair{Key: key, Value: v})
}

// has reports whether the folder has a file.
func (c *converter) has(name string) bool { _, ok := c.f.Files[name]; return ok }

// json is a file's object; nil where there is no file.
func (c *converter) json(name string) (*pyjson.Object, error) {
	p, ok := c.f.Files[name]
	if o, known := c.read[name]; known || !ok {
		return o, nil
	}
	v, err := pyjson.Parse(p, maxValues)
	if err != nil {
		return nil, refuse(name, "%v", err)
	}
	o, ok := v.(*pyjson.Object)
	if !ok {
		return nil, refuse(name, "it is no object")
	}
	c.read[name] = o
	return o, nil
}
