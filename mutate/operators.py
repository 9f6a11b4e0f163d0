"""The rules: which small changes of a module are tried.

A mutant is one change inside one function. Its id is its module, its function, the rule and how
many places of that rule come before it in the function: it survives changes elsewhere.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}

_CALCULATED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}

_PASSED_OVER: Final = (
    ast.JoinedStr,  # its positions are not those of the source before Python 3.12
    ast.Raise,  # what an error says is for people; that it is raised is another rule
    ast.Assert,  # a note to the type checker
    ast.arguments,
    ast.Lambda,
)


class Mutant(msgspec.Struct, frozen=True):
    """One change: the bytes from `begin` to `end` of a module become `new`."""

    id: str
    module: str
    function: str
    first_line: int
    line: int
    begin: int
    end: int
    new: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.begin] + self.new.encode() + source[self.end :]

    def shown(self, source: bytes) -> str:
        """Return the change as a person reads it."""
        old = " ".join(source[self.begin : self.end].decode().split())
        return f"{self.module}:{self.line}  {old[:70]}  →  {self.new[:70]}"


def mutants(module: str, source: bytes) -> list[Mutant]:
    """Return every change of a module that the rules know, in the order of the source."""
    return list(_Places(module, source).of_module())


class _Places:
    """The places of one module."""

    def __init__(self, module: str, source: bytes) -> None:
        self._module = module
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._count: Counter[tuple[str, str]] = Counter()

    def of_module(self) -> Iterator[Mutant]:
        yield from self._of_body(ast.parse(self._source).body, "")

    def _of_body(self, body: list[ast.stmt], around: str) -> Iterator[Mutant]:
        """Find the functions of a module or class."""
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from self._of_body(node.body, f"{around}{node.name}.")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from self._of_function(node, around)

    def _of_function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, around: str
    ) -> Iterator[Mutant]:
        name = around + node.name
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        for statement in node.body:
            yield from self._of_node(statement, name, first)

    def _of_node(self, node: ast.AST, name: str, first: int) -> Iterator[Mutant]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from self._of_function(node, f"{name}.<locals>.")
            return
        if isinstance(node, ast.ClassDef):
            return
        for rule, place, new in [*_changes(node), *_negated(node)]:
            number = self._count[name, rule]
            self._count[name, rule] += 1
            yield Mutant(
                f"{self._module}:{name}:{rule}:{number}",
                self._module,
                name,
                first,
                place.lineno,
                self._offset(place.lineno, place.col_offset),
                self._offset(place.end_lineno or 0, place.end_col_offset or 0),
                new,
            )
        if isinstance(node, _PASSED_OVER):
            return
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "pattern"):
                continue
            for inner in value if isinstance(value, list) else [value]:
                if isinstance(inner, ast.AST):
                    yield from self._of_node(inner, name, first)

    def _offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column


Place = ast.expr | ast.stmt
Change = tuple[str, Place, str]
"""A rule, the node whose text it replaces, and what comes there."""


def _changes(node: ast.AST) -> Iterator[Change]:
    """Yield the rules that apply to one node, and what each puts in its place."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            changed = _COMPARED[type(operator)]()
            yield "compare", node, _expression(ast.Compare(left, [changed], [right]))
        case ast.BoolOp(op=operator, values=values):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield "and_or", node, _expression(ast.BoolOp(other, values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not", node, _expression(operand)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _CALCULATED:
            changed_op = _CALCULATED[type(operator)]()
            yield "calculate", node, _expression(ast.BinOp(left, changed_op, right))
        case ast.Constant(value=bool() as value):
            yield "constant", node, str(not value)
        case ast.Constant(value=int() as number):
            yield "constant", node, str(number + 1)
        case ast.Call(func=func, args=[first, second, *rest], keywords=keywords) if not any(
            isinstance(one, ast.Starred) for one in (first, second)
        ):
            yield "arguments", node, _expression(ast.Call(func, [second, first, *rest], keywords))
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield "statement", node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign():
            yield "statement", node, "pass"
        case ast.Delete() | ast.Continue() | ast.Break():
            yield "statement", node, "pass"
        case ast.Raise():
            yield "raise", node, "pass"
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield "return", node, "return None"
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield "condition", node, _expression(ast.IfExp(test, orelse, body))
        case _:
            pass


def _negated(node: ast.AST) -> Iterator[Change]:
    """Yield the condition of a branch, negated, where no other rule changes it."""
    if isinstance(node, ast.If | ast.While) and isinstance(
        node.test, ast.Name | ast.Attribute | ast.Call
    ):
        yield "negate", node.test, _expression(ast.UnaryOp(ast.Not(), node.test))


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _expression(node: ast.expr) -> str:
    """Return the text of an expression, in parentheses: it may stand anywhere."""
    return f"({ast.unparse(ast.fix_missing_locations(node))})"
