from itertools import pairwise

import pytest
import torch
from torch import nn

from sao.networks import ProjectionHead, Prototypes, Teacher


def test_parameters_follow_and_statistics_are_the_teachers_own():
    one, other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), nn.Linear(4, 2)
    teacher = Teacher(one, other)
    before = [value.clone() for value in teacher.parameters()]
    with torch.no_grad():
        for parameter in (*one.parameters(), *other.parameters()):
            parameter += 1
    one(torch.randn(8, 3))
    teacher.update(0.75, one, other)
    for own, was in zip(teacher.parameters(), before, strict=True):
        torch.testing.assert_close(own, was + 0.25)
    assert float(teacher.get_buffer("networks.0.1.running_mean").abs().sum()) == 0
    assert not any(own.requires_grad for own in teacher.parameters())


def test_a_teacher_is_in_the_mode_of_what_it_belongs_to():
    class Student(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.teacher = Teacher(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))

    student = Student()
    inputs = torch.randn(8, 3) + 5
    (network,) = student.teacher.networks
    assert float(network(inputs).mean().abs()) < 1e-5  # with the moments of the batch
    assert float(network.get_buffer("1.running_mean").abs().sum()) > 0
    student.eval()
    assert float(network(inputs).mean().abs()) > 0.01


def test_what_is_followed_must_be_what_was_copied():
    with pytest.raises(ValueError):
        Teacher(nn.Linear(2, 2)).update(0.5)


def test_prototypes_are_a_linear_layer_with_weights_normalised_to_length_1():
    """torch's own parametrisation, whose lengths are then fixed."""
    prototypes = Prototypes(5, 7).double()
    expected = nn.utils.parametrizations.weight_norm(nn.Linear(5, 7, bias=False).double())
    lengths, directions = (expected.get_parameter(f"parametrizations.weight.original{index}") for index in (0, 1))
    with torch.no_grad():
        lengths.fill_(1)
        directions.copy_(prototypes.directions.weight)
    inputs = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    found, wanted = prototypes(inputs), expected(nn.functional.normalize(inputs))
    torch.testing.assert_close(found, wanted)
    assert float(found.detach().abs().max()) <= 1
    weights = torch.randn(4, 7, dtype=torch.float64)
    (own,) = torch.autograd.grad((found * weights).sum(), prototypes.directions.weight)
    (other,) = torch.autograd.grad((wanted * weights).sum(), directions)
    torch.testing.assert_close(own, other)


@pytest.mark.parametrize(("sizes", "last_norm"), [([6, 5, 4], False), ([6, 5, 5, 4], True)])
def test_a_projection_head_is_the_usual_one(sizes, last_norm):
    """Linear, BatchNorm and ReLU in turn, the last linear alone or with a BatchNorm."""
    head = ProjectionHead(sizes, last_norm)
    layers = []
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        last = index == len(sizes) - 2
        layers.append(nn.Linear(inputs, outputs, bias=last and not last_norm))
        layers += [] if last and not last_norm else [nn.BatchNorm1d(outputs)]
        layers += [] if last else [nn.ReLU()]
    expected = nn.Sequential(*layers)
    for own, other in zip(head.parameters(), expected.parameters(), strict=True):
        other.data.copy_(own)
    inputs = torch.randn(8, 6)
    torch.testing.assert_close(head(inputs), expected(inputs))
