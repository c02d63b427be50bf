"""accelerate: save_state and load_state, of a model, its optimiser, scheduler, random states, with automatic naming."""
import os

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import ProjectConfiguration

SAME_NAMES = True


def ready(dir, version, size):
    for s in (AcceleratorState, GradientState, PartialState):
        s._reset_state()
    a = Accelerator(cpu=True, project_config=ProjectConfiguration(project_dir=dir, automatic_checkpoint_naming=True, total_limit=2))
    torch.manual_seed(version)
    width = max(16, int((size / 12) ** 0.5))
    m = torch.nn.Linear(width, width)
    o = torch.optim.AdamW(m.parameters())
    s = torch.optim.lr_scheduler.StepLR(o, 1)
    m, o, s = a.prepare(m, o, s)
    return a, m, o, s


def save(dir, version, size):
    a, m, o, s = ready(dir, version, size)
    with open(os.path.join(dir, "width"), "w") as f:
        f.write(str(size))
    m(torch.ones(2, m.in_features)).sum().backward()
    o.step()
    s.step()
    a.project_configuration.iteration = version
    a.save_state()


def saver(dir, version, size):
    a, m, o, s = ready(dir, version, size)
    with open(os.path.join(dir, "width"), "w") as f:
        f.write(str(size))
    m(torch.ones(2, m.in_features)).sum().backward()
    o.step()
    return a.save_state


def load(dir):
    with open(os.path.join(dir, "width")) as f:
        size = int(f.read())
    a, m, o, s = ready(dir, 12345, size)
    a.load_state()  # the newest of those that total_limit left
    return {"model": m.state_dict(), "optimiser": o.state_dict(), "scheduler": s.state_dict()["last_epoch"], "random": torch.rand(3),
            "kept": sorted(os.listdir(os.path.join(dir, "checkpoints")))}
