"""Small wrong changes of a source file: a sign, a factor, a bound, a comparison, an index, an argument, a missing detach."""

import ast
import copy
import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

TURNED = [(ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)]  # either is the other's opposite
EXCHANGED = [(ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.BitAnd, ast.BitOr), (ast.And, ast.Or), (ast.Lt, ast.LtE)]
EXCHANGED += [(ast.Gt, ast.GtE), *TURNED]
OPERATORS: dict[type, type] = dict.fromkeys((ast.FloorDiv, ast.Mod, ast.Pow), ast.Mult)
OPERATORS |= {one: other for pair in EXCHANGED for one, other in (pair, pair[::-1])}
LEFT_OUT = {"detach", "square", "sqrt", "abs", "log", "exp", "clamp", "clamp_min", "clamp_max", "relu", "normalize", "clone"}
RENAMED = {"mean": "sum", "sum": "mean", "min": "max", "max": "min", "argmin": "argmax", "argmax": "argmin", "zeros": "ones"}
WIDTH = 120  # letters of a mutant that are shown
MODULES = {"F", "torch", "np", "math"}
NOT_DROPPED = {"device", "non_blocking", "stacklevel", "strict", "description"}  # not to be noticed on a CPU, or only text
NOT_SWAPPED = {"min", "max", "minimum", "maximum", "equal", "isinstance", "getattr", "setattr"}
GUARDS = {"no_grad", "enable_grad", "once_differentiable"}  # decorators and contexts that change what is differentiated


@dataclass(frozen=True)
class Mutant:
    """One changed place; `before` and `after` are one line each, as Python prints them."""

    file: str
    function: str
    line: int
    kind: str
    before: str
    after: str
    source: bytes  # of the whole file, changed
    repeat: int = 0  # which one, of those that look the same in this function

    @property
    def key(self) -> str:
        """A name that stays when lines move."""
        return f"{self.file}:{self.function}: {self.before} -> {self.after}" + (f" #{self.repeat}" if self.repeat else "")

    @property
    def order(self) -> str:
        """By which a sample is taken: as good as chance, and the same for everyone."""
        return hashlib.sha256(self.key.encode()).hexdigest()


def mutants(file: str, source: bytes) -> list[Mutant]:
    """All of them; those that Python cannot read are left out."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: list[Mutant] = []
    seen: dict[str, int] = {}
    for function, place in _places(ast.parse(source)):
        for kind, node, changed in _changes(place):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            before, after = ast.unparse(node), ast.unparse(changed)
            text = f"({after})" if isinstance(changed, ast.expr) else after  # in brackets it means what it says
            whole = source[:start] + text.encode() + source[end:]
            mutant = Mutant(file, function, node.lineno, kind, *_shown(before, after), whole)
            repeat = seen[mutant.key] = seen.get(mutant.key, -1) + 1
            with suppress(SyntaxError):
                ast.parse(whole)
                found.append(replace(mutant, repeat=repeat))
    return found


def _shown(before: str, after: str) -> tuple[str, str]:
    """Both in one line, from a little before the place where they differ."""
    before, after = " ".join(before.split()), " ".join(after.split())
    same = next((i for i, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), len(after))
    start = max(0, min(same - WIDTH // 3, max(len(before), len(after)) - WIDTH))
    return before[start : start + WIDTH], after[start : start + WIDTH]


def _places(tree: ast.Module) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
    """Every expression and statement inside functions and classes, with the function's dotted name."""

    def visit(node: ast.AST, name: str) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
        for child in _looked_into(node):
            inner = name
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inner = f"{name}.{child.name}".lstrip(".")
            if isinstance(child, ast.expr | ast.stmt):
                yield inner, child
            yield from visit(child, inner)

    return visit(tree, "")


def _looked_into(node: ast.AST) -> Iterator[ast.AST]:
    """Children, without annotations, messages, imports and docstrings: nothing is computed there."""
    skipped: list[ast.AST | None] = []
    match node:
        case ast.keyword(arg=name) if name in NOT_DROPPED:
            skipped = [node.value]
        case ast.FunctionDef():
            skipped = [node.returns, *(a.annotation for a in ast.walk(node.args) if isinstance(a, ast.arg))]
        case ast.AnnAssign():
            skipped = [node.annotation, node.target]
        case ast.arg():
            skipped = [node.annotation]
    for child in ast.iter_child_nodes(node):
        is_text = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        if child not in skipped and not is_text and not isinstance(child, _NOTHING_COMPUTED):
            yield child


_NOTHING_COMPUTED = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)


def _changes(node: ast.expr | ast.stmt) -> Iterator[tuple[str, ast.expr | ast.stmt, ast.AST]]:
    """(kind, what is replaced, by what)."""
    match node:
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if type(node.op) in OPERATORS:
            yield "operator", node, _with(node, op=OPERATORS[type(node.op)]())
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                if type(operator) in OPERATORS:
                    other = OPERATORS[type(operator)]()
                    yield "comparison", node, _with(node, ops=[*node.ops[:index], other, *node.ops[index + 1 :]])
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert()):
            yield "sign", node, node.operand
        case ast.Constant(value=bool()):
            yield "constant", node, ast.Constant(not node.value)
        case ast.Constant(value=int() as value):
            yield "constant", node, ast.Constant(value + 1)
        case ast.Constant(value=float() as value):
            yield "constant", node, ast.Constant(2 * value if value else 1.0)
        case ast.If() | ast.While() if not _changes_once(node.test):
            yield "condition", node.test, ast.UnaryOp(ast.Not(), node.test)
        case ast.IfExp():
            yield "condition", node, _with(node, body=node.orelse, orelse=node.body)
        case ast.Subscript(slice=ast.Slice() as part):
            for bound in ("lower", "upper"):
                if getattr(part, bound) is not None:
                    yield "index", node, _with(node, slice=_with(part, **{bound: None}))
        case ast.Attribute(attr="T"):
            yield "left out", node, node.value
        case ast.Expr(value=ast.Call()):
            yield "left out", node, ast.Pass()
        case ast.Name() if node.id in GUARDS:
            yield "guard", node, _expression("lambda function: function")
        case ast.Call(func=ast.Attribute(attr=name)) if name in GUARDS:  # what does nothing, around a block or a function
            yield "guard", node, _expression("torch.autograd.profiler.record_function('')")
        case ast.Call():
            yield from ((kind, node, changed) for kind, changed in _calls(node))


def _changes_once(test: ast.expr) -> bool:
    """Whether another change already turns this condition round."""
    turned = isinstance(test, ast.Compare) and isinstance(test.ops[0], tuple(kind for pair in TURNED for kind in pair))
    return turned or isinstance(test, ast.UnaryOp)


def _calls(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    for index in range(len(node.args) - 1):
        one, other = node.args[index : index + 2]
        if _can_be_swapped(node, one) and _can_be_swapped(node, other) and ast.dump(one) != ast.dump(other):
            yield "arguments", _with(node, args=[*node.args[:index], other, one, *node.args[index + 2 :]])
    for index, keyword in enumerate(node.keywords):
        if keyword.arg is not None and keyword.arg not in NOT_DROPPED:
            yield "keyword", _with(node, keywords=node.keywords[:index] + node.keywords[index + 1 :])
    if isinstance(node.func, ast.Attribute):
        name, owner = node.func.attr, node.func.value
        of_module = isinstance(owner, ast.Name) and owner.id in MODULES
        if name in LEFT_OUT and (node.args or not of_module):
            yield "left out", node.args[0] if of_module else owner
        if name in RENAMED:
            yield "other function", _with(node, func=_with(node.func, attr=RENAMED[name]))


def _can_be_swapped(call: ast.Call, argument: ast.expr) -> bool:
    """Not where the order does not matter, and not where the first call would stop with an error of type."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""
    if name in NOT_SWAPPED:
        return False
    text = isinstance(argument, ast.JoinedStr) or (isinstance(argument, ast.Constant) and isinstance(argument.value, str))
    return not text and not isinstance(argument, ast.Starred | ast.Lambda)


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _with(node, **fields):
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed
