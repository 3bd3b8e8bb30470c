"""`training.microbatch: auto`: what is chosen by workers and memory, and where nothing may be chosen."""

import numpy as np
import pytest

from znnpy.config.models import Config
from znnpy.distributed.errors import DistributedError
from znnpy.engine.kept import choices, folder
from znnpy.infer import microbatch
from znnpy.infer.config_model import training_model
from znnpy.infer.microbatch import with_microbatch_chosen
from znnpy.network import trained_network

PLAIN = [
    {"conv": {"channels": 16, "size": [1, 5, 5]}},
    {"conv": {"channels": 16, "size": [1, 5, 5], "function": "relu"}},
    {"conv": {"channels": 10, "size": [1, 20, 20]}},
]
NORMED = [{"conv": {"channels": 4, "size": [1, 5, 5], "norm": "batch"}}, *PLAIN[1:]]


def config_of(layers=PLAIN, batch=32, run=None, **training) -> Config:
    return Config.model_validate(
        {
            "network": {"input": 1, "layers": layers},
            "training": {
                "output_shape": 1,
                "batch": batch,
                "microbatch": "auto",
                "conv": "direct",
                **training,
            },
            "run": run or {},
        }
    )


def chosen(config: Config, ranks: int = 1, workers: int = 1) -> int:
    found = with_microbatch_chosen(config, trained_network(config), ranks, workers)
    assert isinstance(found.training.microbatch, int)
    return found.training.microbatch


def test_many_workers_get_more_and_smaller_microbatches():
    sizes = [chosen(config_of(), workers=workers) for workers in (1, 4, 128)]
    assert sizes[0] == 32
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 32


def test_a_batch_is_cut_until_it_fits_into_the_memory():
    def memory(**run):
        config = config_of(batch=64, run={"threads": 1, **run})
        with training_model(config, trained_network(config), None) as model:
            return model.microbatch, model.memory

    whole, plenty = memory()
    limit = plenty * 4 // 5
    small, less = memory(max_memory=limit)
    assert whole == 64 > small
    assert less <= limit


def test_every_rank_gets_a_microbatch():
    assert chosen(config_of(batch=12), ranks=5) <= 2
    assert chosen(config_of(batch=7), ranks=3) == 1


def test_more_ranks_than_samples_are_refused():
    with pytest.raises(DistributedError, match="9 ranks were started"):
        chosen(config_of(batch=8), ranks=9)


@pytest.mark.parametrize(
    "training",
    [
        {"layers": NORMED},
        {
            "layers": [*PLAIN[:-1], {"conv": {**PLAIN[-1]["conv"], "function": "logistic"}}],
            "loss": {"kind": "dice", "batch": True},
        },
    ],
)
def test_statistics_over_a_batch_stay_over_all_of_it(training):
    assert chosen(config_of(**training), workers=64) == 32


def test_a_number_stays_as_it_is():
    config = config_of(microbatch=4)
    assert with_microbatch_chosen(config, trained_network(config)) is config


def test_a_chosen_microbatch_computes_what_its_number_computes():
    config = config_of(batch=8, run={"threads": 2})
    network = trained_network(config)
    number = with_microbatch_chosen(config, network)
    losses = []
    for each in (config, number):
        rng = np.random.default_rng(0)
        with training_model(each, network, None) as model:
            image = rng.standard_normal((8, 1, *model.input_shape)).astype(np.float32)
            losses.append(model.step(image, np.zeros((8, 10, 1, 1, 1), np.float32)))
    assert losses[0] == losses[1]


def test_the_next_run_takes_what_was_chosen(tmp_path, monkeypatch):
    """For the same network, sizes, batch, cores, ranks and memory."""
    monkeypatch.setattr(folder, "home", lambda: tmp_path / "graphs")
    monkeypatch.setattr(choices, "LEAST_SECONDS", 0.0)
    found, choose = [], microbatch.chosen_microbatch
    monkeypatch.setattr(
        microbatch, "chosen_microbatch", lambda *given: found.append(choose(*given)) or found[-1]
    )
    config = config_of()
    assert chosen(config, workers=4) == chosen(config, workers=4) == found[0]
    assert len(found) == 1
    others = {"batch": 16}, {"output_shape": 2}, {"seed": 3}, {"run": {"max_memory": 1 << 30}}
    for count, other in zip((2, 3, 3, 4), others, strict=True):
        chosen(config_of(**other), workers=4)
        assert len(found) == count
    chosen(config, workers=5)
    chosen(config, ranks=2, workers=4)
    assert len(found) == 6
