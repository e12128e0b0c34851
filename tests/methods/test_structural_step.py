"""Three whole steps of the paper's method against a slow reference that is written from the definitions."""

from dataclasses import replace

import product
import pytest
import reference_losses as reference
import reference_step
import torch
from product import Options
from reference_losses import Settings
from torch import Tensor

from sao.networks.cpu import portable

PLAIN = Options()


def case(**changes) -> Options:
    """Options and settings of the losses by one set of names."""
    losses = {name: changes.pop(name) for name in list(changes) if name in Settings.__dataclass_fields__}
    return replace(PLAIN, settings=replace(PLAIN.settings, **losses), **changes)


SPECTRAL = {"spectral_normalisation": True, "smoothness_weight": 0}
HINGE = {"distance": "hinge", "cluster_weight": 0}
LOCAL = {"local_weight": 0.4, "local_cluster_weight": 0.9}
CASES = {
    "as it is": case(),
    "diagonal": case(covariance="diagonal"),
    "plain mean": case(centre="mean"),
    "diagonal, plain mean": case(covariance="diagonal", centre="mean"),
    "bhattacharyya": case(distance="bhattacharyya"),
    "bhattacharyya, diagonal": case(distance="bhattacharyya", covariance="diagonal"),
    "bhattacharyya, plain mean": case(distance="bhattacharyya", centre="mean"),
    "bhattacharyya, diagonal, plain mean": case(distance="bhattacharyya", covariance="diagonal", centre="mean"),
    "hinge": case(**HINGE),
    "hinge alone": case(**HINGE, smoothness_weight=0),
    "hinge, smooth every other step": case(**HINGE, smooth_every=2),
    "hinge, spectral normalisation": case(**HINGE, **SPECTRAL),
    "hinge, biggan": case(**HINGE, smoothness_weight=0, kind="biggan"),
    "spectral normalisation": case(**SPECTRAL),
    "spectral normalisation and penalty": case(spectral_normalisation=True),
    "no clustering": case(cluster_weight=0),
    "one neighbour": case(neighbours=1),
    "five neighbours": case(neighbours=5),
    "first of the generated skipped": case(skip_first_fake=True),
    "one neighbour, first of the generated skipped": case(skip_first_fake=True, neighbours=1),
    "ceiling": case(norm_side="ceiling"),
    "smooth every other step": case(smooth_every=2),
    "two power steps": case(power_steps=2),
    "three power steps": case(power_steps=3),
    "bank smaller than the batch": case(bank=4),
    "bank of several batches": case(bank=100),
    "colour": case(shape=(3, 8, 8)),
    "flipped": case(flip=True),
    "generated flipped too": case(flip=True, augment_generated=True),
    "generated flipped too, micro-batches": case(flip=True, augment_generated=True, micro_batch=5),
    "generated flipped too, one pass": case(flip=True, augment_generated=True, one_pass=True),
    "micro-batches": case(micro_batch=5),
    "micro-batches, power steps": case(micro_batch=5, power_steps=2, norm_side="ceiling"),
    "micro-batches, smooth every other step": case(micro_batch=4, smooth_every=2, distance="bhattacharyya"),
    "micro-batches, spectral normalisation": case(micro_batch=5, **SPECTRAL),
    "micro-batches, hinge": case(micro_batch=1, **HINGE),
    "own keys": case(own_keys=True),
    "own keys, two power steps, skipped": case(own_keys=True, power_steps=2, skip_first_fake=True),
    "own keys, micro-batches": case(own_keys=True, micro_batch=5),
    "own keys, spectral normalisation": case(own_keys=True, **SPECTRAL),
    "own keys, one pass": case(own_keys=True, one_pass=True, norm_weight=0, smooth_every=2),
    "own keys, one pass, micro-batches": case(own_keys=True, one_pass=True, micro_batch=5, norm_weight=0, smooth_every=2),
    "one pass": case(one_pass=True),
    "one pass, two power steps, ceiling": case(one_pass=True, power_steps=2, norm_side="ceiling"),
    "one pass, smooth every other step": case(one_pass=True, smooth_every=2, distance="bhattacharyya"),
    "no norm term": case(norm_weight=0),
    "one pass, zero sum in every other step": case(one_pass=True, norm_weight=0, smooth_every=2),
    "one pass, zero sum in all steps": case(one_pass=True, smoothness_weight=0, distance="bhattacharyya", skip_first_fake=True),
    "one pass, zero sum, no clustering": case(one_pass=True, smoothness_weight=0, cluster_weight=0),
    "one pass, spectral normalisation": case(one_pass=True, spectral_normalisation=True),
    "one pass, spectral normalisation, zero sum": case(one_pass=True, **SPECTRAL),
    "one pass, hinge": case(one_pass=True, **HINGE),
    "one pass, micro-batches": case(one_pass=True, micro_batch=5),
    "one pass, micro-batches, zero sum in every other step": case(one_pass=True, micro_batch=5, norm_weight=0, smooth_every=2),
    "one pass, micro-batches, spectral normalisation": case(one_pass=True, micro_batch=5, **SPECTRAL),
    "one pass, micro-batches, hinge": case(one_pass=True, micro_batch=1, **HINGE),
    "one pass, vectors, no clustering": case(one_pass=True, shape=(7,), cluster_weight=0),
    "warm-up": case(cluster_warmup=2),
    "warm-up, one pass": case(cluster_warmup=4, one_pass=True),
    "norms of some": case(smooth_one_in=3),
    "norms of one, two power steps, ceiling": case(smooth_one_in=6, power_steps=2, norm_side="ceiling"),
    "norms of some, micro-batches, spectral normalisation": case(smooth_one_in=4, micro_batch=5, spectral_normalisation=True),
    "norms of some, own keys, one pass": case(smooth_one_in=4, own_keys=True, one_pass=True, smooth_every=2),
    "norms of some, one pass, zero sum in every other step": case(
        smooth_one_in=2, one_pass=True, norm_weight=0, smooth_every=2
    ),
    "norms of some, one pass, micro-batches, local": case(**LOCAL, smooth_one_in=2, one_pass=True, micro_batch=5),
    "a norm of the first sample alone, micro-batches": case(smooth_one_in=50, micro_batch=2),
    "a norm of the first sample alone, one pass, micro-batches": case(smooth_one_in=50, one_pass=True, micro_batch=2),
    "norms of some, lazy, vectors": case(smooth_one_in=2, lazy=True, smooth_every=2, shape=(7,)),
    "lazy": case(lazy=True, smooth_every=2),
    "lazy, micro-batches": case(lazy=True, smooth_every=2, micro_batch=5),
    "lazy, one pass": case(lazy=True, smooth_every=2, one_pass=True),
    "local": case(**LOCAL),
    "local, last stage, bhattacharyya": case(**LOCAL, local_stage=1, distance="bhattacharyya"),
    "local, diagonal, plain mean, two power steps": case(**LOCAL, covariance="diagonal", centre="mean", power_steps=2),
    "local distance alone": case(local_weight=0.4, cluster_weight=0),
    "local neighbours alone": case(local_cluster_weight=0.9, smooth_every=2),
    "local, micro-batches": case(**LOCAL, micro_batch=5, smooth_every=2),
    "local, one pass": case(**LOCAL, one_pass=True),
    "local, one pass, micro-batches, zero sum in every other step": case(
        **LOCAL, one_pass=True, micro_batch=5, norm_weight=0, smooth_every=2
    ),
    "local, one pass, zero sum in all steps": case(**LOCAL, one_pass=True, smoothness_weight=0),
    "local, spectral normalisation, micro-batches": case(**LOCAL, micro_batch=5, **SPECTRAL),
    "vectors": case(shape=(7,)),
    "vectors, spectral normalisation": case(shape=(7,), **SPECTRAL),
    "vectors, micro-batches": case(shape=(7,), micro_batch=5, covariance="diagonal"),
    "vectors, hinge": case(shape=(7,), **HINGE),
}


def assert_alike(found: dict[str, Tensor], expected: dict[str, Tensor], what: str, rtol: float = 1e-9) -> None:
    assert found.keys() == expected.keys(), what
    for name, value in expected.items():
        said = lambda text, name=name: f"{what}, {name}: {text}"  # noqa: E731
        torch.testing.assert_close(found[name], value, rtol=rtol, atol=rtol, msg=said)


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_three_steps_are_those_of_the_reference(options):
    """Every term, gradient, weight and buffer, both EMAs and the bank."""
    method = product.built(options)
    expected = product.reference(options, method)
    for number, inputs in enumerate(product.batches(options, 3)):
        found = product.step(method, inputs, number)
        with portable():
            logged = expected.step(found.real, found.draws, number)
        assert_alike(found.scalars, logged, f"step {number}, logged")
        assert_alike(found.gradients, expected.gradients, f"step {number}, gradient")
        # AdamW makes a visible step of a gradient that is zero but for rounding, as that of a bias before a norm is.
        assert_alike(product.state(method), product.state(expected), f"step {number}, after it", rtol=1e-8)
        assert_banks_alike(product.bank(method), expected.bank)


def assert_banks_alike(found: tuple[Tensor, Tensor] | None, expected: reference_step.Bank | None) -> None:
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        embeddings, keys = found
        rows = expected.contents(embeddings, keys)
        assert_alike({"embeddings": embeddings, "keys": keys}, dict(zip(["embeddings", "keys"], rows, strict=True)), "bank")


@pytest.mark.parametrize("side", ["floor", "ceiling"])
def test_no_term_of_the_compared_steps_is_empty(side):
    """A term that is zero would agree with anything."""
    options = case(norm_side=side, **LOCAL)
    method = product.built(options)
    found = [product.step(method, inputs, number).scalars for number, inputs in enumerate(product.batches(options, 3))]
    assert all(max(abs(float(scalars[name])) for scalars in found) > 1e-4 for name in found[0])


def test_the_players_and_the_steps_draw_for_themselves():
    method = product.built(PLAIN)
    inputs = product.batches(PLAIN, 1)[0]
    draws = [product.step(method, inputs, number).draws for number in range(2)]
    latents = [rows for drawn in draws for rows in (drawn.discriminator_latents, drawn.generator_latents)]
    assert distinct(torch.cat(latents))
    assert distinct(torch.cat([drawn.directions for drawn in draws if drawn.directions is not None]).flatten(1))


def test_the_generated_images_of_both_players_are_mirrored_by_draws_of_their_own():
    options = case(flip=True, augment_generated=True)
    method = product.built(options)
    draws = [product.step(method, inputs, number).draws for number, inputs in enumerate(product.batches(options, 3))]
    mirrored = [torch.stack([drawn.discriminator_mirrored, drawn.generator_mirrored]) for drawn in draws]
    assert 0 < torch.stack(mirrored).double().mean() < 1
    assert any(not torch.equal(*rows) for rows in mirrored)


def test_positions_of_an_image_differ_and_are_drawn_anew_for_each_side_and_step():
    method = product.built(case(**LOCAL))
    batches = product.batches(PLAIN, 2)
    draws = [product.step(method, inputs, number).draws for number, inputs in enumerate(batches)]
    drawn = [places for one in draws for places in (one.real_positions, one.generated_positions) if places is not None]
    assert [places.shape for places in drawn] == [(6, 4)] * 4
    assert all(len(set(row.tolist())) == 4 and min(row) >= 0 and max(row) < 64 for places in drawn for row in places)
    assert len({tuple(row.tolist()) for places in drawn for row in places}) > 20


def distinct(rows: Tensor) -> bool:
    """Whether any two rows differ, and in more than their length: equal directions do nothing new."""
    return bool((reference.unit(rows) @ reference.unit(rows).T).triu(1).abs().max() < 0.999)
