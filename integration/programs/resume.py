"""A trainer that is killed in the middle of a save, and goes on.

    resume.py transformers|accelerate|lightning|lightning-link RUN SAVES [--die FILE] [--from PATH]

It trains until it has saved so many steps in all, in the folder RUN. With --die it kills itself when half of FILE of the
last of them is written; a file "-" is no file: it dies before it writes the second one. It goes on from what the library
finds by itself, or from PATH. Prints the step that it went on from, 0: none. lightning-link is Lightning whose last.ckpt
is a link.
"""
import argparse
import os
import shutil
import signal
import sys

import torch

p = argparse.ArgumentParser()
p.add_argument("library")
p.add_argument("run")
p.add_argument("saves", type=int)
p.add_argument("--die")
p.add_argument("--from", dest="start")
args = p.parse_args()
os.environ["HF_HUB_OFFLINE"] = "1"


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def half(path):
    """Leaves half of a file that was just written, as a program does that is killed while it writes."""
    size = os.path.getsize(path)
    f = open(path, "r+b", 0)
    f.truncate(size // 2)
    f.write(b"x")
    die()


save = torch.save


def dying(step):
    """torch.save that dies at FILE of the step with that in its path."""
    def saved(obj, f, *a, **kw):
        path = os.fspath(f) if isinstance(f, (str, os.PathLike)) else ""
        if step in path.split("/") and args.die == "-":
            die()
        save(obj, f, *a, **kw)
        if step in path.split("/") and os.path.basename(path) == args.die:
            half(path)
    return saved


def transformers():
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, i):
            x = torch.arange(8) + i % 8
            return {"input_ids": x, "labels": x}

    class Begin(TrainerCallback):
        def on_train_begin(self, a, state, control, **kw):
            print(state.global_step)

    if args.die:
        torch.save = dying(f"checkpoint-{args.saves}")
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=32, n_layer=1, n_head=2))
    to = TrainingArguments(args.run, max_steps=args.saves, save_steps=1, per_device_train_batch_size=1, use_cpu=True,
                           report_to=[], disable_tqdm=True, logging_strategy="no")
    found = any(n.startswith("checkpoint-") for n in os.listdir(args.run)) if os.path.isdir(args.run) else False
    Trainer(model, to, train_dataset=Data(), callbacks=[Begin()]).train(resume_from_checkpoint=args.start or found)


def accelerate():
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration

    # It names its steps PROJECT/checkpoints/checkpoint_N.
    project = os.path.dirname(args.run)
    a = Accelerator(cpu=True, project_config=ProjectConfiguration(project_dir=project, automatic_checkpoint_naming=True))
    model = torch.nn.Linear(64, 64)
    o = torch.optim.AdamW(model.parameters())
    model, o = a.prepare(model, o)

    class Progress:
        n = 0

        def state_dict(self):
            return {"n": self.n}

        def load_state_dict(self, d):
            self.n = d["n"]

    at = Progress()
    a.register_for_checkpointing(at)
    if args.start or os.path.isdir(args.run) and os.listdir(args.run):
        a.load_state(args.start)
    print(at.n)
    while at.n < args.saves:
        at.n += 1
        model(torch.ones(2, 64)).sum().backward()
        o.step()
        if args.die and at.n == args.saves:
            torch.save = dying(f"checkpoint_{args.saves}")
        # It refuses a folder that is there, which a save that was cut off left.
        shutil.rmtree(os.path.join(args.run, f"checkpoint_{at.n}"), ignore_errors=True)
        a.project_configuration.iteration = at.n
        a.save_state()


def lightning(last=True):
    import lightning as L
    from lightning.fabric.utilities import cloud_io
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.fabric.plugins.io import torch_io

    class Model(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(32, 1)

        def training_step(self, batch, _):
            loss = self.layer(batch).pow(2).mean()
            self.log("loss", loss, on_step=False, on_epoch=True)
            return loss

        def on_train_start(self):
            print(self.current_epoch)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    if args.die:
        whole = cloud_io._atomic_save

        def atomic(checkpoint, path):
            whole(checkpoint, path)
            if os.path.basename(path) == args.die:
                half(path)
        torch_io._atomic_save = cloud_io._atomic_save = atomic
    keep = ModelCheckpoint(dirpath=args.run, save_top_k=-1, save_last=last, filename="{epoch}", enable_version_counter=False,
                           monitor="loss")
    t = L.Trainer(accelerator="cpu", max_epochs=args.saves, callbacks=[keep], logger=False, enable_progress_bar=False,
                  enable_model_summary=False)
    data = torch.utils.data.DataLoader(torch.randn(8, 32), batch_size=4)
    t.fit(Model(), data, ckpt_path=args.start or "last", weights_only=False)


{"transformers": transformers, "accelerate": accelerate, "lightning": lightning,
 "lightning-link": lambda: lightning("link")}[args.library]()
sys.stdout.flush()
