"""Which device and how many threads a run gets, and what is said of devices that are not there."""

from __future__ import annotations

import platform

import pytest
import torch

from digideep.errors import UsageError
from digideep.utility import device
from digideep.utility.device import choose_device, choose_threads, device_name, granted_cores, require_device


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs, as driver and torch show them."""
    monkeypatch.setattr(device, "_driver_shows_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.parametrize(
    ("network_class", "width", "expected"),
    [
        ("mlp", 512, "cpu"),
        ("mlp", 513, "cuda:0"),
        ("custom", 64, "cpu"),
        ("custom", 1024, "cuda:0"),
        ("cnn", 8, "cuda:0"),
        ("rnn", 8, "cuda:0"),
    ],
)
def test_the_rule_goes_by_class_and_width(gpus: None, network_class: str, width: int, expected: str) -> None:
    assert choose_device(network_class, width).device == expected


def test_without_a_gpu_everything_is_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_driver_shows_gpu", lambda: False)

    assert choose_device("cnn", 8) == ("cpu", "no GPU")


def test_a_gpu_that_torch_cannot_use_is_told(gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    assert choose_device("cnn", 8).device == "cpu"
    assert "cannot use" in device.unusable_gpu()


def test_a_device_has_one_spelling_whoever_names_it(gpus: None) -> None:
    assert [device_name(name) for name in ("cpu", "cuda", "cuda:0", "cuda:1")] == ["cpu", "cuda:0", "cuda:0", "cuda:1"]
    assert device_name("cuda") == choose_device("cnn", 8).device


@pytest.mark.parametrize("asked", ["auto", "cpu", "cuda", "cuda:1"])
def test_a_device_that_is_there_may_be_asked_for(gpus: None, asked: str) -> None:
    require_device(asked)

    assert device_name(asked) == {"auto": "auto", "cuda": "cuda:0"}.get(asked, asked)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("cuda:2", r"^--device: expected 'cuda:2', found 2 usable GPUs; use --device auto"),
        ("cuda:", r"^--device: expected auto, cpu, cuda or cuda:N, found 'cuda:'"),
        ("tpu", r"^--device: expected auto, cpu, cuda or cuda:N, found 'tpu'"),
    ],
)
def test_a_device_that_is_not_there_is_refused(gpus: None, asked: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        require_device(asked)


def test_small_networks_compute_in_one_thread_and_others_in_every_granted_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_cgroup_cores", lambda: None)
    monkeypatch.setattr(device.os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)

    assert (choose_threads("mlp", 64), choose_threads("cnn", 0)) == (1, 8)
    assert (choose_threads("custom", 255), choose_threads("custom", 256)) == (1, 8)
    monkeypatch.setattr(device, "_cgroup_cores", lambda: 2.5)
    assert granted_cores() == 2
    monkeypatch.setattr(device, "_cgroup_cores", lambda: 0.5)
    assert granted_cores() == 1
    monkeypatch.setattr(device, "_cgroup_cores", lambda: None)
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "3")
    assert granted_cores() == 3


def test_the_processor_has_a_name_where_the_system_tells_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_cpu_field", lambda name: "")
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")

    assert device.cpu_model() == "riscv64"
