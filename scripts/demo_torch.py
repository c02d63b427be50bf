"""The demo's training with torch: a ResNet of four blocks for 3x32x32 images, 4.9 M parameters."""
import os

import torch
from safetensors.torch import load_file as load_view  # noqa: F401
from torch import nn

SAVE, ENDING = "torch.save", ".pt"
LOADS = [("torch.load(model.pt)", torch.load),
         ("torch.load(model.pt, mmap=True)", lambda path: torch.load(path, mmap=True))]


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.short = nn.Sequential() if cin == cout else nn.Sequential(
            nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.short(x))


class Net(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
            Block(64, 64, 1), Block(64, 128, 2), Block(128, 256, 2), Block(256, 512, 2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(512, classes)


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def same(a, b):
    """Bit for bit: as integers, so that NaN equals itself and -0 does not equal 0."""
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and a[k].shape == b[k].shape
        and torch.equal(bits(a[k]), bits(b[k])) for k in a)


class Training:
    def __init__(self):
        torch.manual_seed(0)
        torch.set_num_threads(min(4, os.cpu_count() or 1))
        classes = torch.randn(10, 3, 32, 32)
        self.labels = torch.randint(10, (128,))
        images = classes[self.labels] + 0.7 * torch.randn(128, 3, 32, 32)
        self.model = Net().eval()  # eval: the frozen backbone's batch statistics stay as they are
        self.model.backbone.requires_grad_(False)
        self.optimiser = torch.optim.Adam(self.model.head.parameters(), lr=0.1)
        self.tensors = len(self.model.state_dict())
        with torch.no_grad():
            self.features = self.model.backbone(images)

    def step(self):
        loss = nn.functional.cross_entropy(self.model.head(self.features), self.labels)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return loss.item()

    def save(self, path):
        torch.save(self.model.state_dict(), path)

    def state(self):
        return {k: v.clone() for k, v in self.model.state_dict().items()}
