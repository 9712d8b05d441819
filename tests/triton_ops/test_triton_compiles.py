"""What can be shown without GPU and interpreter: compiled kernels and launch plans."""

from __future__ import annotations

import pytest
import torch

from logitkit.batch import backend_ops
from triton_ops import report
from triton_ops.launch import TUNINGS, plan_launches, splits_of
from triton_ops.shipped import steps

CUDA, PROCESSORS = TUNINGS["cuda"], 132


@pytest.mark.parametrize("target", [target.name for target in report.TARGETS])
def test_every_shipped_kernel_compiles_without_spills(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = report.main(["--target", target])
    printed = capsys.readouterr().out
    assert failed == 0, printed
    assert target in printed


def test_few_configurations_are_shipped() -> None:
    for tuning in TUNINGS.values():
        shipped = list(report.configurations(tuning))
        assert len([kernel for kernel in shipped if not kernel.details]) <= 12
        assert len(shipped) <= 16


def test_a_decode_step_is_a_fixed_number_of_launches() -> None:
    for target in report.TARGETS:
        for details in (False, True):
            for step in steps(target, report.BATCHES, details):
                assert step.draws + step.commits <= 8
                if step.batch >= 128 and target.tuning.one_launch:
                    assert (step.draws, step.commits) == (1 + details, 1)
                assert step.floor < step.moved < 4 * step.floor


def test_the_report_sees_spills_and_too_much_shared_memory() -> None:
    target = report.TARGETS[1]
    assert report.problems_of(target, report.Usage(128, 1000, 0, 0)) == []
    assert report.problems_of(target, report.Usage(128, 1000, 2, 0))
    assert report.problems_of(target, report.Usage(128, 1000, 0, 8))
    assert report.problems_of(target, report.Usage(128, 228 * 1024, 0, 0))
    metadata = (
        ".vgpr_spill_count: 3\n.sgpr_spill_count: 4\n.private_segment_fixed_size: 5\n"
        ".vgpr_count: 6\n"
    )
    assert report.amd_usage(metadata, 7) == report.Usage(6, 7, 7, 5)


def test_many_rows_are_one_launch() -> None:
    for rows in (128, 256, 1000):
        assert len(plan_launches(CUDA, rows, 128_256, True, True, PROCESSORS)) == 1


@pytest.mark.parametrize("tuning", list(TUNINGS))
def test_few_rows_are_a_fixed_number_of_launches(tuning: str) -> None:
    for rows in range(1, 300):
        for sampling in (True, False):
            launches = plan_launches(TUNINGS[tuning], rows, 151_936, True, sampling, PROCESSORS)
            most = 6 if TUNINGS[tuning].one_launch else 7
            assert len(launches) in (1, most - (not sampling))
            phases = [p for launch in launches for p in range(launch.first, launch.last + 1)]
            assert phases == list(range(7 if sampling else 6))


def test_one_row_is_shared_by_many_programs_and_never_by_more_than_it_has_tiles() -> None:
    assert splits_of(CUDA, 1, 128_256, PROCESSORS) == 32
    assert splits_of(CUDA, 32, 128_256, PROCESSORS) == 4
    assert splits_of(CUDA, 1, 100, PROCESSORS) == 1
    for rows in range(1, 133):
        assert rows * splits_of(CUDA, rows, 262_144, PROCESSORS) <= PROCESSORS


def test_the_bytes_of_a_row_are_near_the_floor() -> None:
    for configuration in report.configurations(CUDA):
        moved, floor = report.bytes_per_row(CUDA, configuration)
        limit = 3 if configuration.sampling and configuration.dtype == "fp32" else 5
        assert floor < moved < limit * floor


def test_without_a_gpu_triton_is_refused_and_never_replaced() -> None:
    with pytest.raises(ValueError, match=r"`backend`='triton' needs CUDA or ROCm tensors, got cpu"):
        backend_ops("triton", torch.device("cpu"))
    assert backend_ops("triton", torch.device("cuda")).BACKEND == "triton"
    # the kernels have not run on a GPU yet, so they are taken only where they are asked for
    assert backend_ops("auto", torch.device("cuda")).BACKEND == "torch"
