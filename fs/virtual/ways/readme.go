package ways

// Readme is .ckptfs/make/README.
const Readme = `Files that nobody saved, computed when they are read. They take no space. Copy one to keep it.

cast/bf16/PATH, cast/f16/PATH, cast/f32/PATH
    The safetensors file PATH in another type, as torch's to(dtype) and save_file write it.
consolidated/FOLDER/model.safetensors
    The tensors of a folder that torch.distributed.checkpoint wrote, as FSDP does, in one file. Of a step of
    DeepSpeed's ZeRO, stages 1 to 3, the weights in single precision, as zero_to_fp32.py has them.
shard/tp=K/rank-R/PATH
    What rank R of K has of the safetensors file PATH, for tensor parallelism. The model's config.json has to
    be beside PATH. Llama, Mistral, Qwen2, Qwen3, GPT-2.
sharded_state/tp=K/FOLDER/
    The Hugging Face model in FOLDER as vLLM's ranks load it: --load-format sharded_state, K of them. Llama,
    Mistral, Qwen2, Qwen3 in bfloat16 or float16.
megatron/tp=K/FOLDER/
    The Hugging Face model in FOLDER as Megatron-LM's ranks load it: --load FOLDER --ckpt-format torch, K of
    them. Llama, Mistral, Qwen2, Qwen3. With tp=K,vocab=N the vocabulary is padded to a multiple of N.
hf/FOLDER/model.safetensors
    The checkpoint of Megatron-LM in FOLDER, iter_… or release, as a Hugging Face model. Its config.json has to
    be in the folder, or in the one above.
soup/mean/PATH/+/PATH/soup.safetensors
    The mean of 2 to 16 files: /+/ and one more path for each.
soup/sum/WEIGHT/PATH/+/WEIGHT/PATH/soup.safetensors
    The weighted sum of 2 to 16 files.
soup/slerp/T/PATH/+/PATH/soup.safetensors
    Spherically between two files, T of the way from the first to the second, as mergekit's slerp.
gguf/bf16/FOLDER.gguf, gguf/f16/FOLDER.gguf, gguf/f32/FOLDER.gguf
    The Hugging Face model in FOLDER as llama.cpp's convert_hf_to_gguf.py writes it. Llama, Mistral, Qwen2,
    Qwen3, and Mixtral, Qwen2-MoE and Qwen3-MoE.
merge/SCALE/ADAPTER/+/PATH
    The safetensors file PATH with a LoRA of PEFT merged into it. ADAPTER is the path of the adapter's
    adapter_model.safetensors, beside its adapter_config.json. SCALE is 1, or what scale_layer is given.

PATH is a path of the mount. What is no safetensors file is a link to itself. If a file is not there, a file of
its name and .why says why: cat cast/bf16/runs/a/1/model.safetensors.why. So does one of the name of a folder
that has not what is made of folders, and of the first name of a path that is not there: cat shard/tp=0.why
`
