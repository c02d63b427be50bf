"""change.py FROM TO NAME: saves FROM's tensors at TO with one of them changed, as a training step would."""
import sys

import torch

source, target, name = sys.argv[1:]
sd = torch.load(source)
sd[name] = sd[name] * 1.0009765625 + 1e-3
torch.save(sd, target)
