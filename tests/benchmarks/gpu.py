"""On a GPU: first the laws on real kernels, then a table of times. Needs no network.

    python tests/benchmarks/gpu.py --json gpu.json            # everything, about ten minutes
    python tests/benchmarks/gpu.py --quick                     # the laws and a few cells

Times are medians in microseconds of CUDA-graph replays. The floor is one device-to-device copy
of the logits. Peers: transformers' processors, torch's sort, FlashInfer and vLLM where installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent), str(HERE.parent / "triton_ops")]

DEVICE = "cuda"  # "cpu" under the interpreter, to try the script itself
BATCHES = (1, 8, 32, 64, 128, 256)
WIDTHS = (32_000, 128_256, 151_936, 262_144)
HISTORY = 512
ALL: dict[str, Any] = {
    "repetition_penalty": 1.1, "presence_penalty": 0.1, "frequency_penalty": 0.2,
    "temperature": 0.7, "top_k": 50, "top_p": 0.9, "min_p": 0.05,
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "draw": {},
    "temperature": {"temperature": 0.7},
    "penalties": {k: v for k, v in ALL.items() if k.endswith("_penalty")},
    "top_k": {"top_k": 50},
    "top_p": {"top_p": 0.9},
    "min_p": {"min_p": 0.05},
    "all": ALL,
}
Step = Callable[[], Any]


def problem(size: int, width: int, deviation: float = 3.0) -> Tensor:
    """Normal logits, about what language models give."""
    generator = torch.Generator(DEVICE).manual_seed(size)
    return torch.randn(size, width, device=DEVICE, generator=generator) * deviation


def call_of(
    size: int, width: int, fields: dict[str, Any], mask: bool
) -> tuple[Any, dict[str, Tensor]]:
    """The arguments of a fused call behind the logits, on the GPU."""
    from helpers import arguments, start, tensors

    from logitkit import SamplingParams

    if mask:
        fields = fields | {"allowed_token_ids": range(0, width, 2)}
    params = [SamplingParams(sampling_seed=i, **fields) for i in range(size)]
    g = torch.Generator().manual_seed(5)
    prompts = torch.randint(width, (size, HISTORY), generator=g).tolist()
    batch = start(params, prompts, width, backend="numba", prompt_lengths=[HISTORY // 2] * size)
    given = {name: value.to(DEVICE) for name, value in arguments(batch).items()}
    return tuple(t.to(DEVICE) for t in tensors(batch.rows())), given


# The laws on real kernels


def check_twins() -> str:
    """The same survivors and tokens as plain torch on the CPU, for every filter and edit."""
    from helpers import histories
    from test_triton_kernels import CHAIN, EDITS, EVERYTHING, FILTERS, kinds
    from twin import compare, requests

    rounded = rows = 0
    for width in (33, 513, 20_001, 128_256):
        every = (CHAIN, EVERYTHING) if width > 20_001 else (*FILTERS, *EDITS, CHAIN, EVERYTHING)
        for fields in every:
            if width == 33 and ("logit_bias" in fields or "allowed_token_ids" in fields):
                continue
            if width == 33 and "stop_token_ids" in fields:
                continue
            logits = kinds(width)
            size = len(logits)
            rounded += compare(
                logits, requests([fields] * size), histories(size, width), device=DEVICE
            )
            rows += size
    return f"{rows} rows agree with plain torch, {rounded} decided by rounding"


def check_draws() -> str:
    """10,000 bare draws at V = 512 are those of plain torch."""
    import triton_ops
    from logitkit.ops import reference

    call, given = call_of(10_000, 512, {}, False)
    logits = problem(10_000, 512)
    tokens, _ = triton_ops.sample_tokens(logits, *call, **given)
    want, _ = reference.sample_tokens(logits.cpu(), *(t.cpu() for t in call))
    assert torch.equal(tokens.cpu(), want)
    return "10,000 bare draws equal plain torch's"


def check_splits() -> str:
    """However a row is split over programs, and however often it is run, the result is one."""
    import triton_ops
    from triton_ops import launch

    actual = launch.processors_of
    for fields in (ALL, {"top_p": 0.95}, {"top_k": 60_000}, {}):
        call, given = call_of(4, 151_936, fields, False)
        for deviation in (3.0, 1e-2):
            logits = problem(4, 151_936, deviation)
            results = []
            for processors in (1, 8, 32, 256, *[actual(logits.device)] * 10):
                launch.processors_of = lambda device, n=processors: n  # type: ignore[assignment]
                out, _ = triton_ops.process_logits(logits, *call, **given)
                results.append((out, triton_ops.sample_tokens(logits, *call, **given)[0]))
            launch.processors_of = actual
            for out, tokens in results[1:]:
                assert torch.equal(out, results[0][0])
                assert torch.equal(tokens, results[0][1])
    return "split rows and repeated runs are bit-equal"


def check_graph() -> str:
    """A captured call draws fresh noise at every replay: position and seed are device tensors."""
    import triton_ops

    (slot, position, *others), given = call_of(8, 32_000, {"temperature": 2.0}, False)
    logits = problem(8, 32_000, 0.5)
    triton_ops.sample_tokens(logits, slot, position, *others, **given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tokens, _ = triton_ops.sample_tokens(logits, slot, position, *others, **given)
    seen = []
    for _ in range(4):
        position += 1
        graph.replay()
        want, _ = triton_ops.sample_tokens(logits, slot, position, *others, **given)
        assert torch.equal(tokens, want)
        seen.append(tokens.tolist())
    assert len({tuple(found) for found in seen}) == 4
    return "graph replays draw fresh noise and equal eager calls"


def check_grammars() -> str:
    """Masks and automata as in plain torch, and steps with tables that never wait for the host."""
    from automata import random_call
    from helpers import histories, masks, start
    from test_triton_kernels import EVERYTHING, kinds
    from twin import compare, requests

    import triton_ops
    from logitkit.ops import reference

    for width in (513, 20_001):
        logits = kinds(width)
        size = len(logits)
        for words in (width // 32, width // 32 + 2):
            for fields in ({}, EVERYTHING):
                params, prompts = requests([fields] * size), histories(size, width)
                compare(logits, params, prompts, device=DEVICE, masks=masks(size, words))
    for seed in range(8):
        call = random_call(seed, size=5000)
        moved = triton_ops.advance_fsm(*(part.to(DEVICE) for part in call))
        assert torch.equal(moved.cpu(), reference.advance_fsm(*call))
    params = requests([{"regex": "([a-e]{2})*(x[a-e]*)?"}, {}, {"choice": ["abab", "aab"]}])
    fast = start(params, [[0]] * 3, 97, backend="triton", device=DEVICE)
    slow = start(params, [[0]] * 3, 97, backend="numba")
    assert "grammar[table]" in str(fast.plan)
    for step in range(5):
        logits = problem(3, 97)
        torch.cuda.set_sync_debug_mode("error" if step else "default")  # the first one compiles
        tokens, _ = fast.plan.draw(logits, fast.rows())
        fast.commit(tokens.clamp_min(0))
        torch.cuda.set_sync_debug_mode("default")
        want, _ = slow.plan.draw(logits.cpu(), slow.rows())
        slow.commit(want.clamp_min(0))
        assert torch.equal(tokens.cpu(), want)
    return "masks, automata and steps with grammars equal the CPU's, without a host sync"


def check_commits() -> str:
    """Histories and heads move as in plain torch, in place, whatever the strides."""
    import triton_ops
    from logitkit.ops import reference

    g = torch.Generator().manual_seed(6)
    for size, n in ((1, 1), (7, 3), (300, 1), (300, 17)):
        tokens = torch.randint(100, (size, 2, 60), generator=g)
        head = torch.randint(30, (size, 2), generator=g)
        new, counts = (torch.randint(n + 1, (n, size), generator=g).T for _ in range(2))
        for num_tokens in (None, counts[:, 0]):
            want = tokens[:, 1].clone(), head[:, 0].clone()
            reference.commit_tokens(*want, new, num_tokens)
            there, heads = tokens.clone().to(DEVICE)[:, 1], head.clone().to(DEVICE)[:, 0]
            given = None if num_tokens is None else num_tokens.to(DEVICE)
            triton_ops.commit_tokens(there, heads, new.to(DEVICE), given)
            assert torch.equal(there.cpu(), want[0])
            assert torch.equal(heads.cpu(), want[1])
    return "commits equal plain torch's"


def check_details() -> str:
    """Log-probabilities within 1e-6 of plain torch's, split rows and whole ones, same survivors."""
    import triton_ops
    from logitkit.ops import reference
    from triton_ops import launch

    actual, worst, rows = launch.processors_of, 0.0, 0
    for fields in (ALL, {"top_p": 0.95}, {"top_k": 60_000}, {"logit_bias": {3: 9.0}}, {}):
        for size, width in ((4, 128_256), (150, 2_000)):
            call, given = call_of(size, width, fields, False)
            logits = problem(size, width)
            local = (t.cpu() for t in (logits, *call))
            want = reference.sample_tokens(
                *local, details=True, **{k: v.cpu() for k, v in given.items()}
            )
            results = []
            for processors in (1, 32, actual(logits.device)):
                launch.processors_of = lambda device, n=processors: n  # type: ignore[assignment]
                results.append(triton_ops.sample_tokens(logits, *call, details=True, **given))
            launch.processors_of = actual
            for found in results[1:]:
                assert all(map(torch.equal, found, results[0]))
            same = results[0][3].cpu() == want[3]
            assert int((~same).sum()) <= 1  # a mass within 1e-6 of p
            assert torch.equal(results[0][0].cpu()[same], want[0][same])
            gap = float((results[0][2].cpu() - want[2])[same].abs().max())
            assert gap <= 2e-6
            worst, rows = max(worst, gap), rows + size
    return f"log-probabilities of {rows} rows within {worst:.1e} of plain torch's"


def check_steps() -> str:
    """A whole decode step waits for nothing, and a graph of it goes on at every replay."""
    from helpers import start
    from twin import requests

    params = requests([ALL, {"temperature": 2.0}, {"temperature": 0.0}, {"top_p": 0.9}] * 2)
    prompts = [[1 + i] * (3 + i) for i in range(8)]
    logits = problem(8, 5000, 1.0)
    fast, captured, slow = (
        start(params, prompts, 5000, backend=backend, device=device, room=64)
        for backend, device in (("triton", DEVICE), ("triton", DEVICE), ("numba", "cpu"))
    )

    def step(batch: Any, logits: Tensor) -> None:
        tokens, _ = batch.plan.draw(logits, batch.rows())
        batch.commit(tokens)

    step(fast, logits)  # compiles
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(4):
            step(fast, logits)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    step(captured, logits)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # runs nothing yet
        step(captured, logits)
    for _ in range(4):
        graph.replay()
    for _ in range(5):
        step(slow, logits.cpu())
    for batch in (fast, captured):
        assert torch.equal(batch.history.head.cpu(), slow.history.head)
        for slot, head in enumerate(slow.history.head.tolist()):
            found = batch.history.tokens[slot, :head].cpu()
            assert torch.equal(found, slow.history.tokens[slot, :head])
    last = slow.rows().last(5)
    assert len({tuple(step) for step in last.T.tolist()}) == 5  # fresh noise at every replay
    return "decode steps wait for nothing, and replays of their graph draw what the CPU draws"


LAWS = (
    check_twins, check_draws, check_splits, check_graph, check_grammars, check_commits,
    check_details, check_steps,
)  # fmt: skip


# The table


def ours(logits: Tensor, fields: dict[str, Any], mask: bool) -> Step:
    import triton_ops

    call, given = call_of(*logits.shape, fields, mask)
    return lambda: triton_ops.sample_tokens(logits, *call, **given)


def transformers_list(logits: Tensor, fields: dict[str, Any]) -> Step | None:
    """transformers' processors and a multinomial draw; it lacks presence and frequency."""
    from transformers import LogitsProcessorList
    from transformers.generation import logits_process as hf

    makers: dict[str, Any] = {
        "repetition_penalty": hf.RepetitionPenaltyLogitsProcessor,
        "temperature": hf.TemperatureLogitsWarper,
        "top_k": hf.TopKLogitsWarper,
        "top_p": hf.TopPLogitsWarper,
        "min_p": hf.MinPLogitsWarper,
    }
    chain = LogitsProcessorList(make(fields[k]) for k, make in makers.items() if k in fields)
    ids = torch.randint(logits.shape[1], (len(logits), HISTORY), device=DEVICE)
    return lambda: exponential_race(chain(ids, logits).softmax(-1))


def exponential_race(probabilities: Tensor) -> Tensor:
    """A draw that a CUDA graph can capture (as vLLM's)."""
    return (probabilities / torch.empty_like(probabilities).exponential_()).argmax(-1)


def sort_based(logits: Tensor, fields: dict[str, Any]) -> Step | None:
    """top-k and top-p by one full sort, in plain torch."""
    if not {"top_k", "top_p"} & set(fields):
        return None

    def step() -> Tensor:
        ordered, ids = (logits / fields.get("temperature", 1.0)).sort(-1, descending=True)
        if "top_k" in fields:
            ordered = ordered.masked_fill(
                ordered < ordered[:, fields["top_k"] - 1, None], -torch.inf
            )
        p = ordered.softmax(-1)
        if "top_p" in fields:
            p = p.masked_fill(p.cumsum(-1) - p >= fields["top_p"], 0.0)
        return ids.gather(-1, exponential_race(p)[:, None])

    return step


def flashinfer(logits: Tensor, fields: dict[str, Any]) -> Step | None:
    """FlashInfer's fused top-k / top-p sampling from logits."""
    if importlib.util.find_spec("flashinfer") is None or not {"top_k", "top_p"} <= set(fields):
        return None
    from flashinfer.sampling import top_k_top_p_sampling_from_logits

    return lambda: top_k_top_p_sampling_from_logits(logits, fields["top_k"], fields["top_p"])


def vllm(logits: Tensor, fields: dict[str, Any]) -> Step | None:
    """vLLM's Triton op for top-k / top-p, and its exponential race."""
    if importlib.util.find_spec("vllm") is None or not {"top_k", "top_p"} & set(fields):
        return None
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

    size = len(logits)
    k = torch.full((size,), fields["top_k"], device=DEVICE) if "top_k" in fields else None
    p = torch.full((size,), fields["top_p"], device=DEVICE) if "top_p" in fields else None
    return lambda: exponential_race(apply_top_k_top_p(logits.clone(), k, p).softmax(-1))


def microseconds(step: Step, replays: int = 30) -> float:
    """The median time of a replayed CUDA graph of the step."""
    for _ in range(2):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    times = []
    for _ in range(replays + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * begin.elapsed_time(end))
    return median(times[3:])


def cells(batches: Sequence[int], widths: Sequence[int]) -> Iterator[dict[str, Any]]:
    """One line of the table after the other."""
    for width in widths:
        for size in batches:
            logits = problem(size, width)
            target = torch.empty_like(logits)
            floor = microseconds(lambda a=target, b=logits: a.copy_(b))
            for name, fields in CASES.items():
                steps: dict[str, Step | None] = {
                    "logitkit": ours(logits, fields, mask=False),
                    "logitkit, mask": ours(logits, fields, mask=True),
                    "transformers": transformers_list(logits, fields),
                    "torch sort": sort_based(logits, fields),
                    "FlashInfer": flashinfer(logits, fields),
                    "vLLM": vllm(logits, fields),
                }
                times: dict[str, float | str] = {}
                for peer, step in steps.items():
                    if step is None:
                        continue
                    try:
                        times[peer] = round(microseconds(step), 2)
                    except Exception as error:  # a peer that fails is a line, not the end
                        times[peer] = f"{type(error).__name__}: {error}"[:100]
                yield {"width": width, "batch": size, "case": name, "floor": floor, "us": times}


def main(arguments: Sequence[str] | None = None) -> int:
    """Laws, then the table; 1 if a law fails or there is no GPU."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="where to write the table")
    parser.add_argument(
        "--quick", action="store_true", help="the laws and B = 1, 64 at V = 128,256"
    )
    parser.add_argument("--no-laws", action="store_true", help="only the table")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("no GPU here: nothing was measured")
        return 1
    for law in () if options.no_laws else LAWS:
        print(f"law: {law()}", flush=True)
    batches, widths = ((1, 64), (128_256,)) if options.quick else (options.batches, options.widths)
    found = []
    for cell in cells(batches, widths):
        found.append(cell)
        line = "  ".join(f"{peer} {value}" for peer, value in cell["us"].items())
        mine = cell["us"]["logitkit"]
        ratio = f"{mine / cell['floor']:.1f}x" if isinstance(mine, float) else "-"
        print(
            f"V={cell['width']} B={cell['batch']} {cell['case']}: floor {cell['floor']:.1f}  {line}"
            f"  ratio to the floor {ratio}",
            flush=True,
        )
        if options.json:
            table = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
            options.json.write_text(json.dumps(table | {"cells": found}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
