"""A method with only the weights in memory that its use needs: to embed, no generator, no bank and no optimiser."""

import copy
import re
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

import torch

from sao.config import Config
from sao.errors import InputError
from sao.methods import Method, Use
from sao.training import checkpoint
from sao.training.data_facts import DataFacts


class PartialMethod:
    """The method of a checkpoint with only the weights that its uses need; where it has no `outline`, with all of them."""

    def __init__(
        self, build: Callable[[], Method], outline: Method | None, path: Path, device: torch.device, raw: bool
    ) -> None:
        self.outline, self.path, self.device = outline, path, device
        self._build, self._raw = build, raw
        self._ready: set[Use] = set()
        self.uses = checkpoint.uses_of(path)  # of a copy that holds some weights; None where all are there
        if outline is not None:
            there = {name: tuple(tensor.shape) for name, tensor in outline.state_dict().items()}
            self._stored = checkpoint.tensor_shapes(path)
            if (there if self.uses is None else {name: there.get(name) for name in self._stored}) != self._stored:
                raise checkpoint.other_network(path)

    @property
    def _copy(self) -> str:
        return str(self.path.parents[1])

    def ready_for(self, use: Use) -> Method:
        """The method, with only the weights that this use needs."""
        if self.uses is not None and use not in self.uses:
            raise InputError(f"{self._copy} is a copy for {', '.join(self.uses)}: it holds nothing for {use}")
        if self._partial is None:
            return self.whole
        if use not in self._ready:
            names = self.names_for(use)
            if names is None:
                return self.whole
            self._fill(self._partial, names)
            self._ready.add(use)
        return self._partial

    @cached_property
    def whole(self) -> Method:
        """All of it, optimisers too."""
        if self.uses is not None:
            raise InputError(f"{self._copy} is a copy for {', '.join(self.uses)}: it holds nothing to train on")
        method = self._build().to(self.device)
        checkpoint.load(self.path, method)
        self.check_finite(method.state_dict())
        if self._raw:
            method.use_raw_weights()
        return method.eval()

    @cached_property
    def _partial(self) -> Method | None:
        return copy.deepcopy(self.outline)

    def names_for(self, use: Use) -> set[str] | None:
        """What the checkpoint holds for a use; None where the use needs more than a checkpoint holds."""
        if self.outline is None:
            return None
        needed = self.outline.tensors_for(use).keys()
        if not needed <= self.outline.state_dict().keys():
            return None
        return {name for name in needed if self._stored_as(name, self._stored) in self._stored}

    def _fill(self, method: Method, names: set[str]) -> None:
        stored = {name: self._stored_as(name, self._stored) for name in names}
        tensors = checkpoint.some_tensors(self.path, sorted(set(stored.values())))
        self.check_finite(tensors)
        kinds = {name: tensor.dtype for name, tensor in method.state_dict().items()}  # a copy may keep half of the bits
        filled = {name: tensors[other].to(self.device, kinds[name]) for name, other in stored.items()}
        method.load_state_dict(filled, strict=False, assign=True)
        method._apply(lambda tensor: tensor)  # weights take the layout of the device they came to

    def check_finite(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Training never saves such weights: whoever wrote them, nothing computed with them means anything."""
        broken = next((name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())), None)
        if broken is not None:
            raise InputError(
                f"checkpoint {self.path} holds NaN or infinity in {broken}: take another checkpoint of the run, "
                "or train again with a lower learning rate"
            )

    def _stored_as(self, name: str, known) -> str:
        """Raw weights stand in the place of their EMA: ema_X follows X."""
        other = re.sub(r"^ema_(\w+)\.network\.", r"\1.", name) if self._raw else name
        return other if other in known else name


def latest_method(
    config: Config, facts: DataFacts, checkpoints: Path, device: torch.device, raw: bool, report: Callable[[str], None]
) -> tuple[PartialMethod, int]:
    """The method of the latest whole checkpoint, with no weights in memory yet, and the step."""

    def build() -> Method:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said when the run began
            return config.build_method(facts.shape, facts.samples, facts.classes)

    def used(path: Path) -> tuple[PartialMethod, int]:
        step = checkpoint.checked_step(path, (checkpoint.METHOD,))
        found = PartialMethod(build, outline, path, device, raw)
        if outline is None:
            _ = found.whole  # only then is it known whether it fits
        return found, step

    outline = _outline(build)
    try:
        return checkpoint.latest(checkpoints, report, used)
    except (RuntimeError, MemoryError, OverflowError) as error:  # numbers that no network, or no machine, can have
        place = checkpoints.parent
        raise InputError(f"the network that {place} describes cannot be built: {str(error).splitlines()[0]}") from None


def _outline(build: Callable[[], Method]) -> Method | None:
    """The method without values and optimisers; None where it cannot be built without values."""
    try:
        with torch.device("meta"):
            outline = build()
    except (RuntimeError, NotImplementedError, OverflowError, MemoryError):
        return None
    outline.optimisers = {}
    return outline.eval()
