"""The paper's method: who moves, what each switch changes, and the same gradient however a batch is cut."""

from functools import partial

import pytest
import tiny
import torch
from torch.nn import functional as F

from sao.errors import InputError
from sao.methods import Batch, discriminator_passes
from sao.methods.gan import Adversarial
from sao.methods.structural import Structural

LOSSES = {"distance", "similarity_real", "similarity_fake", "norm_hinge", "smoothness"}
DIAGNOSTICS = {"embedding_norm", "jacobian_norm", "logdet_real", "logdet_fake", "gradient_norm"}


built = partial(tiny.method_of, Adversarial)


structural = partial(tiny.method_of, Structural)


def inputs(step: int = 0, size: int = 16) -> torch.Tensor:
    return tiny.batch(step, size).inputs


def copied(method: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in method.state_dict().items()}


def terms(scalars: dict, player: str = "discriminator") -> set[str]:
    return {name.partition("/")[2] for name in scalars if name.startswith(player)}


def test_one_step_moves_what_it_should():
    method = built()
    before = copied(method)
    scalars = method.step(tiny.batch(), 0)
    after = method.state_dict()
    assert terms(scalars) == LOSSES | DIAGNOSTICS
    assert terms(scalars, "generator") == {"distance", "similarity_fake", "gradient_norm"}
    assert all(torch.isfinite(value) and not value.requires_grad for value in scalars.values())
    for name, parameter in method.named_parameters():
        if not name.startswith("ema_"):
            assert not torch.equal(before[name], after[name]), name
            assert parameter.requires_grad
    for player in ("discriminator", "generator"):
        for name, _ in getattr(method, player).named_parameters():
            start, now = before[f"{player}.{name}"], after[f"{player}.{name}"]
            torch.testing.assert_close(after[f"ema_{player}.network.{name}"], start.lerp(now, 0.01))


def test_the_bank_fills_with_what_the_discriminator_says_of_real_samples():
    method = structural()
    assert method.bank is not None
    keys = F.normalize(method.ema_discriminator.network.features(inputs(0)))  # pyright: ignore[reportCallIssue]
    method.step(tiny.batch(0), 0)
    assert len(method.bank) == 16
    expected = F.normalize(method.discriminator(inputs(0))[1])
    torch.testing.assert_close(method.bank.embeddings[:16], expected.detach())
    torch.testing.assert_close(method.bank.keys[:16], keys.detach())
    for step in range(1, 5):
        method.step(tiny.batch(step), step)
    assert len(method.bank) == method.bank.capacity == 64
    assert not torch.equal(method.bank.embeddings[:16], expected)  # the oldest made room


def test_a_step_leaves_the_random_state_of_others_alone():
    method = built(method__augmentation__flip="true", method__augmentation__crop=0.5)
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    method.step(tiny.batch(), 0)
    assert torch.equal(torch.rand(4), expected)


def test_the_bank_is_not_kept_where_nobody_looks_into_it():
    assert structural(method__cluster_weight=0).bank is None


def test_spectral_normalisation_bounds_every_layer():
    method = built(method__spectral_normalisation="true", method__smoothness_weight=0)
    for step in range(3):
        method.step(tiny.batch(step), step)
    weights = [m.weight.flatten(1) for m in method.discriminator.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)]
    assert max(float(torch.linalg.matrix_norm(weight.detach(), ord=2)) for weight in weights) < 1.5
    free = [m.weight.flatten(1) for m in built().discriminator.modules() if isinstance(m, torch.nn.Conv2d)]
    assert max(float(torch.linalg.matrix_norm(weight.detach(), ord=2)) for weight in free) > 1.5


def test_smoothness_can_be_measured_every_other_step():
    """After an even number of steps, which is when rows of the log are written."""
    method = built(method__smooth_every=2)
    assert terms(method.step(tiny.batch(0), 0)) == (LOSSES | DIAGNOSTICS) - {"smoothness", "jacobian_norm"}
    assert terms(method.step(tiny.batch(1), 1)) == LOSSES | DIAGNOSTICS
    assert "smoothness" not in terms(method.step(tiny.batch(2), 2))


# What the steps that are compared with the reference leave out.
@pytest.mark.parametrize(
    ("micro_batch", "options"),
    [
        (16, {}),
        (31, {}),
        (32, {}),
        (5, {"method__cluster_weight": 0}),
        (5, {"method": "hinge", "method__smoothness_weight": 0}),
        (5, {"method__spectral_normalisation": "true"}),
        (16, {"method__spectral_normalisation": "true"}),  # as large as the batch, and half of what D is shown
        (31, {"method__spectral_normalisation": "true"}),
    ],
)
def test_a_batch_in_micro_batches_makes_the_same_step(micro_batch, options):
    """Losses, gradients of both players, bank, statistics and spectral vectors of two steps: the second has neighbours."""
    whole, parts = built(**options).double(), built(method__micro_batch=micro_batch, **options).double()
    for step in range(2):
        batch = Batch(inputs(step).double(), tiny.batch(step).rows)
        expected, found = whole.step(batch, step), parts.step(batch, step)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
        for name, parameter in whole.named_parameters():
            if parameter.grad is not None:
                torch.testing.assert_close(parts.get_parameter(name).grad, parameter.grad, rtol=1e-9, atol=1e-9)
            assert parts.get_parameter(name).requires_grad == parameter.requires_grad
        torch.testing.assert_close(dict(parts.named_buffers()), dict(whole.named_buffers()), rtol=1e-6, atol=1e-9)
    assert all(module.training for module in (parts.discriminator, parts.generator))
    torch.testing.assert_close(parts.state_dict(), whole.state_dict(), rtol=1e-6, atol=1e-9)


def test_the_second_pass_of_a_micro_batch_does_not_iterate_again(monkeypatch):
    seen, found = [], discriminator_passes.outputs_norms_directions

    def recorded(function, x, start, steps, along, create_graph):
        seen.append((len(x), along is None, create_graph))
        return found(function, x, start, steps, along, create_graph)

    monkeypatch.setattr(discriminator_passes, "outputs_norms_directions", recorded)
    built(method__micro_batch=12).step(tiny.batch(), 0)
    first, kept, second = [(12, True, False)] * 2, [(8, True, True)], [(12, False, True)] * 2
    assert seen == first + kept + second  # 32 samples, real and generated


# Passes of 16 samples. Two players apart: keys of real and of two generated batches; both in D's update, twice; real once and
# generated twice in G's. From one pass: keys of both, and both twice. The last micro-batch of each is embedded once only. Keys
# of D's own need no pass.
@pytest.mark.parametrize(
    ("part", "one_pass", "keys", "passes", "last"),
    [
        (1, False, "ema", 3 + 4 + 3, 1 + 1),
        (5, False, "ema", 3 + 4 + 3, 2 + 1),
        (5, False, "own", 4 + 3, 2 + 1),
        (5, True, "ema", 2 + 4, 2),
        (5, True, "own", 4, 2),
    ],
)
def test_no_pass_of_the_discriminator_is_larger_than_a_micro_batch(part, one_pass, keys, passes, last):
    method = built(method__micro_batch=part, method__one_pass=one_pass, method__keys_from=keys)
    sizes: list[int] = []
    for network in (method.discriminator, method.ema_discriminator.network):
        stem = network.get_submodule("encoder.stem")
        stem.register_forward_hook(lambda module, arguments, output: sizes.append(len(arguments[0])))
    method.step(tiny.batch(), 0)
    assert max(sizes) == part
    assert sum(sizes) == 16 * passes - last


def test_features_embeddings_and_samples_come_from_the_emas():
    method = built()
    method.step(tiny.batch(), 0)
    latents = torch.randn(3, 8)
    before = [method.features(inputs()), method.embeddings(inputs()), method.decode(latents)]
    for parameter in (*method.discriminator.parameters(), *method.generator.parameters()):
        parameter.data.zero_()
    after = [method.features(inputs()), method.embeddings(inputs()), method.decode(latents)]
    assert all(torch.equal(one, other) and not one.requires_grad for one, other in zip(before, after, strict=True))
    assert before[0].shape == (16, 8)
    torch.testing.assert_close(before[1].norm(dim=1), torch.ones(16))
    assert before[2].shape == (3, 1, 8, 8)
    method.use_raw_weights()
    assert not torch.equal(method.features(inputs()), before[0])


@pytest.mark.parametrize(("player", "other"), [("discriminator", "generator"), ("generator", "discriminator")])
def test_each_player_alone_moves_the_distance_its_own_way(player, other):
    """D drives generated digits away from real ones, G brings them nearer."""
    rates = {f"method__{player}_optimiser__learning_rate": 1e-2, f"method__{other}_optimiser__learning_rate": 1e-12}
    method = built(method__smoothness_weight=0, method__cluster_weight=0, **rates)
    found = [float(method.step(tiny.batch(step), step)["generator/distance"]) for step in range(25)]
    first, last = sum(found[:5]), sum(found[-5:])
    assert last > 1.5 * first if player == "discriminator" else last < first / 1.5


def test_the_jacobian_and_the_embeddings_go_where_they_are_wanted():
    method = built(method__discriminator_optimiser__learning_rate=1e-2, method__generator_optimiser__learning_rate=1e-12)
    found = [method.step(tiny.batch(step), step) for step in range(40)]
    assert abs(float(found[-1]["discriminator/jacobian_norm"]) - 1) < abs(float(found[0]["discriminator/jacobian_norm"]) - 1)
    assert float(found[-1]["discriminator/embedding_norm"]) > 0.9


def test_the_local_head_is_there_only_where_it_is_asked_for():
    """Nor are the other weights other ones: the local head is drawn after what the discriminator has anyway."""
    plain, local = structural(), structural(method__local_weight=1, method__local_size=5)
    added = {name for name in local.state_dict() if name not in plain.state_dict()}
    assert {name.rpartition(".local_head.")[0] for name in added} == {"discriminator", "ema_discriminator.network"}
    assert local.state_dict()["discriminator.local_head.output.weight"].shape == (5, 4, 1, 1)  # of the last stage but one
    own = plain.discriminator.state_dict()
    assert all(torch.equal(value, local.discriminator.state_dict()[name]) for name, value in own.items())
    for use in ("backbone", "embedding", "decode"):
        assert not added & local.tensors_for(use).keys()


@pytest.mark.parametrize("stage", [0, 1])
def test_the_map_of_a_stage_comes_from_the_pass_of_the_features(stage):
    method = structural(encoder__widths="[4, 8]", encoder__blocks=2)
    encoder, maps = method.discriminator.encoder, []
    for block in encoder.blocks_of_maps():
        block.register_forward_hook(lambda module, arguments, output: maps.append(output))
    features, found = encoder.with_map(inputs(), stage)
    assert len(maps) == 4
    assert torch.equal(found, maps[2 * stage + 1])
    assert torch.equal(features, encoder(inputs()))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"encoder": "vit", "encoder__width": 8, "encoder__heads": 2, "encoder__depth": 1}, "make maps of an image in stages"),
        ({"method__local_stage": 2}, "method.local_stage is 2, and the encoder has stages 0 to 1"),
    ],
)
@pytest.mark.parametrize("weight", ["method__local_weight", "method__local_cluster_weight"])
def test_local_embeddings_of_what_has_no_such_map_are_refused_in_a_line(options, said, weight):
    with pytest.raises(InputError, match=said):
        tiny.method(**options, **{weight: 1})


def test_a_penalty_of_no_sample_is_refused_in_a_line(monkeypatch):
    """One process always has the first sample, also where a price is tried with a smaller batch."""
    assert tiny.method(method__smooth_one_in=17).smooth_one_in == 17
    monkeypatch.setattr("sao.core.distributed.world_size", lambda: 2)
    assert tiny.method(method__smooth_one_in=8).smooth_one_in == 8
    with pytest.raises(InputError, match=r"method\.smooth_one_in 9 is more samples than the 8 of a process: give at most 8"):
        tiny.method(method__smooth_one_in=9)
