"""What the peers with several ranks have in common: arguments, the ranks' cores, and the steps.

A Subject(sizes, rank, ranks) has a step() that returns (seconds, loss). Rank 0 writes
{"seconds": [of each step], "tokens": of a step, all ranks together, "peak_bytes": the most it has
had in RAM since its first step, "version": ...} to --json.
"""

import argparse
import contextlib
import json
import os
import sys

import torch
import torch.distributed as dist


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", default="/dev/stdout")
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    parser.add_argument("--reduce", choices=["f32", "bf16"], default="f32",
                        help="what gradients are reduced in")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="bf16")
    for flag, default in {"steps": 5, "batch": 8, "sequence": 512, "layers": 12, "hidden": 768,
                          "heads": 12, "feed-forward": 0, "vocabulary": 50257,
                          "positions": 1024}.items():
        parser.add_argument(f"--{flag}", type=int, default=default)
    sizes = parser.parse_args()
    sizes.feed_forward = sizes.feed_forward or 4 * sizes.hidden
    return sizes


def keep_to_a_core(rank, ranks):
    """Every rank its own core, as our launcher does."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= ranks:
        share = len(cores) // ranks
        os.sched_setaffinity(0, cores[rank * share:(rank + 1) * share])


def forget_peak():
    """The largest resident size counts from here on."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def peak_bytes():
    with open("/proc/self/status", encoding="utf-8") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def run(make_subject, description):
    """One rank of several, whose variables are those that torchrun sets."""
    sizes = arguments(description)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if sizes.batch % ranks != 0:
        sys.exit(f"{sizes.batch} sequences cannot be split evenly over {ranks} ranks")
    keep_to_a_core(int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"]))
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    subject = make_subject(sizes, rank, ranks)
    forget_peak()
    steps = [subject.step() for _ in range(sizes.steps)]
    if rank == 0:
        print(f"losses from {steps[0][1]:.4f} to {steps[-1][1]:.4f}", file=sys.stderr)
        with open(sizes.json, "w", encoding="utf-8") as file:
            json.dump({"seconds": [seconds for seconds, _ in steps],
                       "tokens": sizes.batch * sizes.sequence,
                       "peak_bytes": peak_bytes(),
                       "version": torch.__version__}, file)
    dist.barrier()
    dist.destroy_process_group()
