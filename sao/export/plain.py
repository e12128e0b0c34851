"""Plain PyTorch: weights as safetensors, and one Python file that needs torch alone.

The file is generated from the graph of torch's own operators, so that it exists for every network and says exactly what it
computes, line by line, under the names of the weights.
"""

import math
import operator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from sao.core.agreement import difference
from sao.data.dataset import PixelRange
from sao.errors import InputError
from sao.export.check import TOLERANCE, Run, run_of
from sao.export.plain_source import FOR_DEEP_IMAGES, FOR_GENERATOR, FOR_IMAGES, FOR_ROWS, HEAD, TAIL
from sao.export.whole import OfImages, Scale, ToImages, Whole
from sao.networks.base import Encoder
from sao.networks.cpu import portable
from sao.networks.vit import VisionTransformer

POOLS = ("aten.mean.dim", "aten.sum.dim_IntList", "aten.select.int", "aten.flatten.using_ints")  # the last step of encoders


def write_folder(folder: Path, whole: Whole, program: ExportedProgram, description: str) -> Run:
    """weights.safetensors and encoder.py, or generator.py; what runs them."""
    lifted, values = _lifted(program), {**program.constants, **program.state_dict}
    names = _names(program, lifted)
    tensors = {plain: values[lifted[name][0]].detach().contiguous().clone() for name, plain in names.items()}
    buffers = sorted(plain for name, plain in names.items() if lifted[name][1] != InputKind.PARAMETER)
    scale = next((module for module in whole.module.modules() if isinstance(module, Scale)), None)
    if scale is not None:
        tensors |= {f"scale_{name}": value for name, value in scale.named_buffers()}
        buffers += [f"scale_{name}" for name, _ in scale.named_buffers()]
    save_file(tensors, folder / "weights.safetensors")
    path, maps = folder / f"{whole.kind}.py", _maps(whole, program) if whole.kind == "encoder" else []
    path.write_text(_source(whole, program, names, buffers, scale, maps, description), encoding="utf-8")
    module = _imported(path)
    if maps:
        _check_maps(whole, module, maps)
    return run_of(module)


def _imported(path: Path) -> torch.nn.Module:
    """Not by an import, which would leave its cache in the folder."""
    names: dict[str, Any] = {"__file__": str(path), "__name__": "exported"}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    return names["load"]()


# --- weights -------------------------------------------------------------------------------------------------------------


def _lifted(program: ExportedProgram) -> dict[str, tuple[str, InputKind]]:
    """Of each input of the graph that is a tensor of the network: its name there, and its kind."""
    found = {}
    for given in program.graph_signature.input_specs:
        if given.kind != InputKind.USER_INPUT:
            assert given.target is not None
            found[given.arg.name] = (given.target, given.kind)
    return found


def _names(program: ExportedProgram, lifted: dict[str, tuple[str, InputKind]]) -> dict[str, str]:
    """Names in the graph, of tensors that are used, and in the file: without the path to the network that all of them share."""
    used = {node.name for node in program.graph.nodes if node.op == "placeholder" and node.users}
    targets = {name: target.split(".") for name, (target, _) in lifted.items() if name in used}
    paths = [path for path in targets.values() if len(path) > 1]
    shared = 0
    while paths and all(len(path) > shared + 1 and path[shared] == paths[0][shared] for path in paths):
        shared += 1
    return {name: ".".join(path[shared:] if len(path) > shared else path) for name, path in targets.items()}


# --- maps on the way -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Map:
    """What a block of the network gives: a map (n, c, h, w), or the tokens (n, 1 + h · w, c) of a transformer."""

    node: fx.Node
    block: str  # by its name in the network

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.node.meta["val"].shape[1:])


def _maps(whole: Whole, program: ExportedProgram) -> list[Map]:
    """The last map of every stage, or the tokens after every block; none where the network has neither."""
    blocks = {id(block) for part in whole.network.modules() for block in _blocks(part)}
    names = [name for name, part in whole.network.named_modules() if id(part) in blocks]
    last: dict[str, fx.Node] = {}
    needed = _needed(_output(program))
    for node in program.graph.nodes:
        if node in needed and node.op == "call_function" and isinstance(node.meta.get("val"), Tensor):
            last |= {name: node for name, _ in (node.meta.get("nn_module_stack") or {}).values()}
    found = [Map(last[name], name) for name in names if name in last]
    ends = [earlier for earlier, later in pairwise(found) if len(earlier.shape) == 2 or earlier.shape != later.shape]
    return ends + found[-1:]


def _blocks(part: torch.nn.Module) -> list[torch.nn.Module]:
    if isinstance(part, VisionTransformer):
        return list(part.blocks)
    return list(part.blocks_of_maps()) if isinstance(part, Encoder) else []


@torch.no_grad()
def _check_maps(whole: Whole, module: Any, maps: list[Map]) -> None:
    """Refuse a file whose maps are not those of the network."""
    caught: dict[str, Tensor] = {}
    blocks = {name: part for name, part in whole.network.named_modules() if name in {one.block for one in maps}}
    hooks = [
        part.register_forward_hook(lambda _part, _inputs, output, name=name: caught.update({name: output}))
        for name, part in blocks.items()
    ]
    height, width, channels = whole.example.shape[1:]
    inputs = torch.rand(2, channels, height, width, generator=torch.Generator().manual_seed(0)) * 2 - 1
    try:
        with portable():
            whole.network(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    if not all(torch.isfinite(tensor).all() for tensor in caught.values()):
        return  # the features are not finite either, and the check of the whole file says so
    found: list[Tensor] = []
    module._network(inputs, found, None)
    apart = max(difference(caught[one.block], tensor) for one, tensor in zip(maps, found, strict=True))
    if apart > TOLERANCE:
        raise InputError(
            f"the maps of the exported encoder differ from the run by {apart:.1e} of the largest value, "
            "so nothing was written: please report this with the run's config.yaml"
        )


# --- the Python file -----------------------------------------------------------------------------------------------------


def _source(
    whole: Whole,
    program: ExportedProgram,
    names: dict[str, str],
    buffers: list[str],
    scale: Scale | None,
    maps: list[Map],
    description: str,
) -> str:
    body, last = _body(program, names, maps, pooled=whole.kind == "encoder")
    shape = tuple(whole.example.shape[1:])
    facts = {"description": description, "buffers": buffers, "body": "\n".join(body), "last": last}
    if whole.kind == "generator":
        after = _after(whole, scale)
        return (HEAD + FOR_GENERATOR + TAIL).format(**facts, shape=shape, name="Generator", after=after)
    features = math.prod(_output(program).meta["val"].shape[1:])
    if whole.input_name == "images":
        height, width, channels = shape
        facts |= {"maps": _feature_info(maps, height), "as_map": _as_map(maps)}
        facts |= {"shape": (channels, height, width), "features": features, "name": "Encoder"}
        if (known := _range_of(whole)) is None:
            return (HEAD + FOR_IMAGES + TAIL).format(**facts)
        factor = [2 / width for width in known.widths]
        return (HEAD + FOR_DEEP_IMAGES + TAIL).format(**facts, low=list(known.low), factor=factor)
    before = "rows" if scale is None else "(rows.double()[:, w['scale_kept']] - w['scale_mean']) / w['scale_std'] * FACTOR"
    factor = 1.0 if scale is None else scale.factor
    return (HEAD + FOR_ROWS + TAIL).format(
        **facts, shape=shape, features=features, name="Encoder", before=before, factor=factor
    )


def _feature_info(maps: list[Map], size: int) -> list[dict[str, Any]]:
    """As timm has it: channels of each map, how much smaller than the image it is, and the block that gives it."""
    found = []
    for one in maps:
        channels, side = (one.shape[1], math.isqrt(one.shape[0] - 1)) if len(one.shape) == 2 else one.shape[:2]
        found.append({"num_chs": channels, "reduction": size // side, "module": _short(one.block)})
    return found


def _as_map(maps: list[Map]) -> str:
    """Of tokens, without that of the class, a map again."""
    if not maps or len(maps[0].shape) == 3:
        return "y"
    side = math.isqrt(maps[0].shape[0] - 1)
    return f"y[:, 1:].mT.unflatten(2, ({side}, {side}))"


def _after(whole: Whole, scale: Scale | None) -> str:
    if (known := _range_of(whole)) is not None:
        low, width = (f"torch.tensor({list(of)!r}, device=x.device)" for of in (known.low, known.widths))
        return f"(x.permute(0, 2, 3, 1).clamp(-1, 1) + 1) / 2 * {width} + {low}"
    if whole.output_name == "images":
        return "((x + 1) * 127.5).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)"
    return "x" if scale is None else f"x.double() / {scale.factor!r} * w['scale_std'] + w['scale_mean']"


def _range_of(whole: Whole) -> PixelRange | None:
    return whole.module.pixel_range if isinstance(whole.module, OfImages | ToImages) else None


def _output(program: ExportedProgram) -> fx.Node:
    (node,) = (node for node in program.graph.nodes if node.op == "output")
    (result,) = node.args[0]
    assert isinstance(result, fx.Node)
    return result


def _body(program: ExportedProgram, names: dict[str, str], maps: list[Map], pooled: bool) -> tuple[list[str], str]:
    """Lines of Python up to the last map or the tokens, in the variable x, and the expression that makes the features of x.

    Lines after each of the maps keep it, and stop there if it is the last that is wanted.
    """
    result = _output(program)
    last = None
    before = result.args[0] if result.args else None
    if pooled and str(result.target) in POOLS and isinstance(before, fx.Node) and before.meta["val"].ndim > 2:
        last, result = result, before
    needed = _needed(result)
    (given,) = program.graph_signature.user_inputs
    words = {name: f'w["{plain}"]' for name, plain in names.items()} | {str(given): "inputs"}
    kept = {one.node: number for number, one in enumerate(maps)}
    lines, place = [], ""
    for node in program.graph.nodes:
        if node.op != "call_function" or node not in needed:
            continue
        here = _place(node)
        if here != place:
            place = here
            lines.append(f"        # {place}")
        lines.append(f"        {node.name} = {_called(node, words)}")
        if node in kept:
            lines += [
                f"        maps.append({node.name})",
                f"        if last == {kept[node]}:",
                f"            return {node.name}",
            ]
    lines.append(f"        return {words.get(result.name, result.name)}")
    return lines, "x" if last is None else _called(last, {result.name: "x"})


def _needed(result: fx.Node) -> set[fx.Node]:
    """What the result is computed from; assertions about sizes are not."""
    found, todo = set(), [result]
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += node.all_input_nodes
    return found


def _place(node: fx.Node) -> str:
    """The innermost module that a line belongs to, by its name in the network."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return _short(stack[-1][0]) if stack else "network"


def _short(name: str) -> str:
    """Of a module, without the way to the network."""
    return name.rpartition("network.")[2] or "network"


def _called(node: fx.Node, words: dict[str, str]) -> str:
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        namespace, name = target.name().split("::")
        packet = name.split(".")[0]
        function = f"torch.ops.{namespace}.{packet}.{target._overloadname}"
    elif target is operator.getitem:
        return f"{_word(node.args[0], words)}[{_word(node.args[1], words)}]"
    elif target.__module__ in ("_operator", "operator"):
        function = f"operator.{target.__name__}"
    elif target.__module__ == "math":
        function = f"math.{target.__name__}"
    else:
        function = f"torch.{target.__name__}"  # of symbolic sizes
    arguments = [_word(value, words) for value in node.args]
    arguments += [f"{key}={_word(value, words)}" for key, value in node.kwargs.items()]
    return f"{function}({', '.join(arguments)})"


def _word(value: Any, words: dict[str, str]) -> str:
    match value:
        case fx.Node():
            return words.get(value.name, value.name)
        case list() | tuple():
            return f"[{', '.join(_word(one, words) for one in value)}]"
        case torch.device():
            return "inputs.device"  # where the network is, not where it was traced
        case float() if not math.isfinite(value):
            return f'float("{value}")'
        case _:
            return repr(value)
