"""mergekit: two fine-tunes merged into a third model, read lazily and written in shards."""
import os

import yaml
from mergekit.config import MergeConfiguration
from mergekit.io.tasks import LoaderCache
from mergekit.merge import run_merge
from mergekit.options import MergeOptions
from transformers import GPT2LMHeadModel

from transformers_ import model

INEXACT = ("mergekit_config.yml", "README.md")  # say where the models lie
EXACT = True


def save(dir, version, size):
    for name, v in (("one", version), ("other", version + 1)):
        model(v, size).save_pretrained(os.path.join(dir, name), max_shard_size=max(size // 3, 100_000))
    config = yaml.safe_dump({
        "merge_method": "linear", "dtype": "float32",
        "models": [{"model": os.path.join(dir, name), "parameters": {"weight": w}} for name, w in (("one", 0.25), ("other", 0.75))]})
    run_merge(MergeConfiguration.model_validate(yaml.safe_load(config)), os.path.join(dir, "merged"), config_source=config,
              options=MergeOptions(copy_tokenizer=False, lazy_unpickle=True, out_shard_size=max(size // 3, 100_000), quiet=True,
                                   write_model_card=False))
    LoaderCache().loaders.clear()  # else the last shard of each model stays mapped


def load(dir):
    return GPT2LMHeadModel.from_pretrained(os.path.join(dir, "merged"), local_files_only=True).state_dict()
