"""Lightning: a Trainer with a ModelCheckpoint that keeps the two best and the last, resumed from its checkpoint."""
import logging
import os
import shutil
import warnings

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from state import tensors

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Model(L.LightningModule):
    def __init__(self, size):
        super().__init__()
        self.frozen = torch.nn.ParameterDict({k.replace(".", "_"): torch.nn.Parameter(v, requires_grad=False)
                                              for k, v in tensors(0, size).items() if v.is_floating_point()})
        self.head = torch.nn.Linear(32, 1)

    def training_step(self, batch, _):
        loss = self.head(batch).pow(2).mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.head.parameters(), lr=1e-2)


def trainer(dir, epochs):
    keep = ModelCheckpoint(dirpath=os.path.join(dir, "checkpoints"), monitor="loss", save_top_k=2, save_last=True,
                           filename="{epoch}", enable_version_counter=False)
    return L.Trainer(accelerator="cpu", max_epochs=epochs, callbacks=[keep], logger=False, enable_progress_bar=False,
                     enable_model_summary=False, default_root_dir=dir)


def fit(dir, epochs, size, resume=None):
    torch.manual_seed(0)
    data = torch.utils.data.DataLoader(torch.randn(8, 32), batch_size=4)
    torch.manual_seed(1)
    t = trainer(dir, epochs)
    m = Model(size)
    t.fit(m, data, ckpt_path=resume, weights_only=False)
    return t, m


def save(dir, version, size):
    shutil.rmtree(os.path.join(dir, "checkpoints"), ignore_errors=True)
    fit(dir, 2 + version, size)


def change(dir, version, size):
    """Goes on from the last checkpoint: reads it, writes more, removes what is not among the best."""
    fit(dir, 4 + version, size, os.path.join(dir, "checkpoints", "last.ckpt"))


def saver(dir, version, size):
    t, _ = fit(dir, 1, size)
    return lambda: t.save_checkpoint(os.path.join(dir, "checkpoints", "last.ckpt"))


def load(dir):
    return torch.load(os.path.join(dir, "checkpoints", "last.ckpt"), weights_only=False)["state_dict"]


def ways(dir):
    folder = os.path.join(dir, "checkpoints")
    for name in sorted(os.listdir(folder)):
        c = torch.load(os.path.join(folder, name), weights_only=False)
        yield name, {"state": c["state_dict"], "optimiser": c["optimizer_states"], "epoch": c["epoch"], "step": c["global_step"]}
    size = sum(v.numel() * 4 for k, v in c["state_dict"].items() if k.startswith("frozen"))
    yield "model", Model.load_from_checkpoint(os.path.join(folder, "last.ckpt"), size=size, weights_only=False).state_dict()
