"""finetune.py RUN N [CLASSES]: trains the last layer of a ResNet-18, the rest frozen, for N steps on made-up images;
saves each step's state dict at RUN/<step>/model.pt, reads it back, and prints the bytes of one file."""
import os
import sys

import torch
from torch import nn

from resnet import ResNet18
from seeded_tensors import differences

run, n = sys.argv[1], int(sys.argv[2])
classes = int(sys.argv[3]) if len(sys.argv) > 3 else 10
torch.manual_seed(0)
model = ResNet18(classes).eval()  # eval: batch statistics of a frozen backbone stay
for name, p in model.named_parameters():
    p.requires_grad_(name.startswith("fc."))
assert len(model.state_dict()) == 122
images, labels = torch.randn(16, 3, 64, 64), torch.randint(classes, (16,))
with torch.no_grad():
    features = model.features(images)
optimiser = torch.optim.Adam(model.fc.parameters(), lr=1e-3)
for step in range(1, n + 1):
    optimiser.zero_grad()
    nn.functional.cross_entropy(model.fc(features), labels).backward()
    optimiser.step()
    path = os.path.join(run, str(step), "model.pt")
    os.makedirs(os.path.dirname(path))
    torch.save(model.state_dict(), path)
    if bad := differences(model.state_dict(), torch.load(path)):
        sys.exit("\n".join(bad))
print(os.path.getsize(path))
