"""The order of pictures and the positions of crops."""

from __future__ import annotations

from pathlib import Path

import torch

from training.config import DataConfig
from training.data.cuts import centre_crops, draw_crops, picture_numbers

CPU = torch.device("cpu")
DATA = DataConfig(path=Path("unused"))


def test_every_picture_comes_once_before_any_comes_again() -> None:
    taken = torch.cat([picture_numbers(10, before, 4, seed=1, device=CPU) for before in range(0, 40, 4)]).tolist()
    rounds = [taken[i : i + 10] for i in range(0, 40, 10)]
    assert all(sorted(numbers) == list(range(10)) for numbers in rounds)
    assert len({tuple(numbers) for numbers in rounds}) == 4


def test_a_batch_larger_than_the_data_goes_around() -> None:
    numbers = picture_numbers(3, 0, 7, seed=1, device=CPU)
    assert torch.bincount(numbers).min() >= 2


def test_order_depends_on_the_seed_and_on_nothing_else() -> None:
    first, again, other = (picture_numbers(50, 20, 8, seed=seed, device=CPU).tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_cuts_begin_anywhere_and_half_of_them_are_mirrored() -> None:
    cuts = draw_crops(DATA, torch.arange(500), torch.Generator().manual_seed(1))
    assert cuts.span is None
    assert cuts.offset.min() < 0.02
    assert cuts.offset.max() > 0.98
    assert 200 < cuts.mirrored.sum() < 300
    assert not draw_crops(DATA.model_copy(update={"flip": False}), torch.arange(9), torch.Generator()).mirrored.any()


def test_scaled_cuts_span_what_the_config_says() -> None:
    data = DATA.model_copy(update={"scale": (0.5, 2.0)})
    cuts = draw_crops(data, torch.arange(500), torch.Generator().manual_seed(1))
    assert cuts.span is not None
    assert 0.5 <= cuts.span.min() < 0.55
    assert 1.95 < cuts.span.max() <= 2.0
    part = cuts.samples_between(10, 20)
    assert part.span is not None
    assert torch.equal(part.span, cuts.span[10:20])
    assert torch.equal(part.picture, cuts.picture[10:20])


def test_central_cuts_are_of_the_pictures_in_order() -> None:
    cuts = centre_crops(3, 6, CPU)
    assert cuts.picture.tolist() == [3, 4, 5]
    assert not cuts.mirrored.any()
