"""One rank of PyTorch's DistributedDataParallel on gloo: the updates of a case; rank 0 prints JSON.

mpiexec -n 2 python ddp.py --net 3x64 --address 127.0.0.1 --interface lo
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def main() -> None:
    """Time blocks of updates, with and without the exchange of gradients."""
    options = _options()
    rank, size = (int(os.environ[f"PMI_{word}"]) for word in ("RANK", "SIZE"))
    os.environ["GLOO_SOCKET_IFNAME"] = options.interface
    import torch
    from peers.cases import ImageCase
    from peers.contestants import Torch
    from peers.images import TorchImages

    from ranks.cases import case_of, compared
    from znnpy.network.parameters import initial_parameters

    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    case = case_of(options.net, options.samples)
    parameters = initial_parameters(case.network, 0)
    if isinstance(case, ImageCase):
        own, module = TorchImages(case, parameters, "channels_last"), torch.nn.Module()
        module.banks = torch.nn.ParameterList(own.banks.values())
        module.forward = own.call
    else:
        own = Torch(case, parameters, "channels_last_3d")
        module = own.network
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://{options.address}:{options.port}", rank=rank, world_size=size
    )
    own.call = torch.nn.parallel.DistributedDataParallel(module)

    def updates(count: int) -> float:
        torch.distributed.barrier()
        start = time.perf_counter()
        own.run(count)
        slowest = torch.tensor((time.perf_counter() - start) / count)
        torch.distributed.all_reduce(slowest, torch.distributed.ReduceOp.MAX)
        return float(slowest)

    updates(3)
    blocks = []
    for _ in range(options.blocks):
        together = updates(options.updates)
        with own.call.no_sync():
            blocks.append((together, updates(options.updates)))
    torch.distributed.destroy_process_group()
    if rank == 0:
        print(json.dumps({**compared(blocks), "torch": torch.__version__}))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--net", default="3x64")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=29533)
    parser.add_argument("--interface", default="lo")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
