"""DeepSpeed: a checkpoint of ZeRO stage 2 by one rank, loaded by the engine and by zero_to_fp32."""
import os

os.environ |= {"DS_ACCELERATOR": "cpu", "MASTER_ADDR": "127.0.0.1", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1",
               "DS_SKIP_CUDA_CHECK": "1", "DEEPSPEED_LOG_LEVEL": "error"}

import deepspeed  # noqa: E402
import torch  # noqa: E402
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint  # noqa: E402

made = []


def setup():
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)


def engine(size):
    if not made:
        torch.manual_seed(0)
        width = max(8, int((size / 24) ** 0.5))
        net = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))
        e, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.AdamW(net.parameters(), lr=1e-3), config={
            "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}, "zero_allow_untested_optimizer": True,
            "bf16": {"enabled": True}, "zero_force_ds_cpu_optimizer": False})
        e.width, e.version = width, 0
        made.append(e)
    return made[0]


def save(dir, version, size):
    e = engine(size)
    if version != e.version:  # it trains once for both folders
        e.version = version
        torch.manual_seed(version)
        e.backward(e(torch.randn(4, e.width, dtype=torch.bfloat16)).square().mean())
        e.step()
    e.save_checkpoint(os.path.join(dir, "zero"), tag=f"step{version}")


def load(dir):
    return get_fp32_state_dict_from_zero_checkpoint(os.path.join(dir, "zero"))


def ways(dir):
    e = engine(None)
    e.load_checkpoint(os.path.join(dir, "zero"))
    yield "engine", {"module": e.module.state_dict(), "optimizer": e.optimizer.state_dict()["base_optimizer_state"]}
