#!/usr/bin/env python3
"""Write steps of DeepSpeed's ZeRO, by two ranks and by three.

    python3 zero.py [FOLDER]            # needs torch and deepspeed; FOLDER is this one by default

  zero/stage1/*    two ranks: two groups of parameters, buffers of several types, embeddings that the head shares
  zero/stage2/*    three ranks, the same, with a frozen layer
  zero/stage3/*    two ranks, the same: each parameter is in parts
"""

import os
import shutil
import sys
import tempfile

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))


def rank(i, folder, stage, ranks):
    os.environ |= {"DS_ACCELERATOR": "cpu", "DS_SKIP_CUDA_CHECK": "1", "DEEPSPEED_LOG_LEVEL": "error",
                   "MASTER_ADDR": "127.0.0.1", "RANK": str(i), "LOCAL_RANK": str(i), "WORLD_SIZE": str(ranks),
                   "GLOO_SOCKET_IFNAME": "lo"}
    import deepspeed
    import torch
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/.meeting", rank=i, world_size=ranks)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = torch.nn.Embedding(11, 7)
            self.frozen = torch.nn.Linear(7, 7)
            self.up = torch.nn.Linear(7, 13)
            self.norm = torch.nn.LayerNorm(13)
            self.down = torch.nn.Linear(13, 7)
            self.head = torch.nn.Linear(7, 11, bias=False)
            self.head.weight = self.emb.weight
            self.register_buffer("freq", torch.rand(5))
            self.register_buffer("scale", torch.rand(3, 2).to(torch.float64))
            self.register_buffer("ids", torch.arange(6))
            self.register_buffer("passing", torch.rand(3), persistent=False)
            self.frozen.requires_grad_(False)

        def forward(self, x):
            return self.head(self.down(self.norm(self.up(self.frozen(self.emb(x))))))

    torch.manual_seed(0)
    net = Net()
    trained = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW([{"params": [p for p in trained if p.ndim > 1]},
                                   {"params": [p for p in trained if p.ndim == 1], "weight_decay": 0.0}], lr=1e-2)
    engine, *_ = deepspeed.initialize(model=net, optimizer=optimizer, config={
        "train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True}, "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "zero_force_ds_cpu_optimizer": False})
    engine.backward(engine(torch.randint(0, 11, (4,))).float().square().mean())
    engine.step()
    engine.save_checkpoint(folder, tag="step")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    import torch.multiprocessing as mp
    for stage, ranks in (1, 2), (2, 3), (3, 2):
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(rank, (folder, stage, ranks), nprocs=ranks)
            to = os.path.join(OUT, f"zero/stage{stage}")
            shutil.rmtree(to, ignore_errors=True)
            shutil.copytree(os.path.join(folder, "step"), to)
