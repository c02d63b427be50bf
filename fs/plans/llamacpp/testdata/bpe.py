"""Writes bpe.json: small byte-level BPEs, and what the library tokenizers makes of the converter's text with them.

    python bpe.py > bpe.json
"""
import json, os, re, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../../integration/programs"))
import converted
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

base = open(os.path.join(converted.converter(), "conversion/base.py")).read()
TEXT = eval(re.search(r"chktxt = ('.*')\n", base).group(1))
level = lambda regex: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)
split = lambda p: pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated"), level(False)])
WORD = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
UPPER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
REST, SHORT = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
out = {}
for name, pre in {
    "llama3": split(converted.LLAMA3), "qwen2": split(converted.LLAMA3.replace("{1,3}", "")),
    "tekken": split(WORD + "|" + UPPER + r"|\p{N}" + REST), "gpt4o": split(WORD + SHORT + "|" + UPPER + SHORT + r"|\p{N}{1,3}" + REST),
    "gpt2": level(True), "digits": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), level(True)]),
}.items():
    t = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
    t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
    t.train_from_iterator([TEXT] * 3 + converted.text()[:50], trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    out[name] = {"tokenizer": json.loads(t.to_str()), "ids": t.encode(TEXT).ids}
print("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in out.items()) + "\n}")
