"""Parser of the arithmetic in a Python program. The program is not run.

Names are replaced by the values assigned to them. So the names, the order of assignments and the number of lines have
no effect. An unknown value (a loop variable, a library call) is represented by the normal form of its syntax tree,
which does not depend on names or the order of commutative operands.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from hashlib import blake2b
from math import factorial, gcd, lcm, prod

from oversharp.diagnostics.ways.computations import MOST_COMPUTATIONS, Computation, record_operation
from oversharp.diagnostics.ways.values import (
    NoValueError,
    Polynomial,
    Value,
    add,
    divide,
    linear_root,
    multiply,
    name_value,
    negate,
    power,
    root,
    symbol,
)

MOST_CHARACTERS, MOST_NODES, MOST_DEPTH = 20_000, 3_000, 50
#: Upper bound of syntax nodes per character ("a+a" has 8), so that nodes of short programs need not be counted.
_NODES_PER_CHARACTER = 4
_FENCED = re.compile(r"```([^\n`]{0,20})\n(.*?)(?:```|\Z)", re.DOTALL)
_PYTHON = frozenset({"", "python", "py", "python3"})
_BARE = re.compile(r"\s*(?:def \w+\(|import \w|from \w+ import |print\()")
#: Calls that leave a number unchanged, so that they are not a step.
_TRANSPARENT = frozenset({"int", "float", "round", "Fraction", "Rational", "Integer", "simplify", "print"})
_SIGNS = {ast.Add: "+", ast.Sub: "+", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "/"}
_INTEGER_FUNCTIONS: dict[str, Callable[..., int]] = {"gcd": gcd, "lcm": lcm, "max": max, "min": min}
_BEFORE = {ast.Sub: "-", ast.Div: "1/", ast.FloorDiv: "1/"}
_LONGEST = 80


class Form(str):
    """Normal form of a piece of a program whose value is unknown."""

    __slots__ = ()


Known = Value | Form


def split_programs(text: str) -> tuple[list[str], str]:
    r"""Return the Python programs in a text, and the text without fenced blocks.

    >>> split_programs("So:\n```python\nprint(2 + 3)\n```\n```output\n5\n```\nIt is 5.")
    (['print(2 + 3)\n'], 'So:\n\n\nIt is 5.')
    """
    if "```" not in text:
        return ([text], "") if _BARE.match(text) else ([], text)
    fenced = _FENCED.findall(text)
    return [body for word, body in fenced if word.strip().lower() in _PYTHON and body.strip()], _FENCED.sub("", text)


def read_program(source: str) -> list[Computation] | None:
    """Return the operations of a program, or None if it is not Python or too long.

    >>> [c.value for c in read_program("eggs = 16 - 3\\nprice = 2\\nprint(eggs * price)")]
    ['13', '26']
    >>> [c.value for c in read_program("for day in days:\\n    total = total + 2 * day")]
    ['for v', '(2*v)', '((2*v)+v)']
    """
    if len(source) > MOST_CHARACTERS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the response's strings may contain invalid escapes
            tree = ast.parse(source)
            if len(source) * _NODES_PER_CHARACTER > MOST_NODES and sum(1 for _ in ast.walk(tree)) > MOST_NODES:
                return None
        reader = _Program()
        reader.body(tree.body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return reader.operations[:MOST_COMPUTATIONS]


class _Program:
    """Interpreter that tracks the values of names, statement by statement."""

    def __init__(self) -> None:
        self.operations: list[Computation] = []
        self.values: dict[str, Known] = {}
        self.functions: dict[str, Known] = {}
        self.returned: Known = Form("v")
        self.depth = 0

    def body(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                self._assign(targets, value)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                self.values[name] = self._evaluate(
                    ast.BinOp(left=ast.Name(id=name, ctx=ast.Load()), op=op, right=value)
                )
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self.values[name] = self._evaluate(value)
            case ast.Return(value=ast.expr() as value):
                self.returned = self._evaluate(value)
            case ast.Expr(value=ast.Constant()):
                pass  # a docstring
            case ast.Expr(value=value):
                self._evaluate(value)
            case ast.If(test=test, body=body, orelse=orelse):
                self._branch("if", [test], [*body, *orelse])
            case ast.While(test=test, body=body):
                self._forget(body)
                self._branch("while", [test], body)
            case ast.For(target=target, iter=iterated, body=body):
                self._forget([*body, ast.Assign(targets=[target], value=iterated)])
                self._branch("for", [iterated], body)
            case ast.FunctionDef(name=name, args=arguments, body=body):
                self._function(name, [argument.arg for argument in arguments.args], body)
            case ast.With(body=body) | ast.Try(body=body):
                self.body(body)
            case _:
                pass  # imports, asserts and other statements without a computation

    def _assign(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        if isinstance(value, ast.Tuple) and isinstance(targets[0], ast.Tuple):
            for target, elt in zip(targets[0].elts, value.elts, strict=False):
                self._assign([target], elt)
            return
        is_symbol = isinstance(value, ast.Call) and _call_name(value) in ("symbols", "Symbol", "var")
        known = Form("v") if is_symbol else self._evaluate(value)
        for name in _names(targets):
            self.values[name] = symbol(name) if is_symbol else known if isinstance(targets[0], ast.Name) else Form("v")

    def _branch(self, word: str, tests: Sequence[ast.expr], body: Sequence[ast.stmt]) -> None:
        self._form(f"{word} " + ",".join(_text(self._evaluate(test)) for test in tests))
        self.body(body)

    def _function(self, name: str, arguments: Sequence[str], body: Sequence[ast.stmt]) -> None:
        outside = dict(self.values)
        self.values |= dict.fromkeys(arguments, Form("v"))
        self.functions[name] = self.returned = Form("f")
        self.body(body)
        self.functions[name] = Form("f") if arguments else self.returned
        self.values = outside

    def _forget(self, body: Sequence[ast.stmt]) -> None:
        for node in body:
            for inside in ast.walk(node):
                if isinstance(inside, ast.Assign | ast.AugAssign):
                    targets = inside.targets if isinstance(inside, ast.Assign) else [inside.target]
                    self.values |= dict.fromkeys(_names(targets), Form("v"))

    def _evaluate(self, node: ast.expr) -> Known:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise ValueError("nested too deep")
        try:
            value = self._expression(node)
        except NoValueError:
            value = Form("v")
        self.depth -= 1
        return value

    def _expression(self, node: ast.expr) -> Known:
        match node:
            case ast.Constant(value=bool() | str() | bytes() | None):
                return Form("c")
            case ast.Constant(value=int() | float() as value):
                return _exact(value)
            case ast.Name(id=name):
                return self.values.get(name, Form("v"))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inside = self._evaluate(operand)
                return Form(f"-{inside}") if isinstance(inside, Form) else negate(inside)
            case ast.BinOp(op=op) if type(op) in _SIGNS:
                return self._flat(node, _SIGNS[type(op)])
            case ast.BinOp(left=left, op=op, right=right):
                return self._other(self._evaluate(left), op, self._evaluate(right))
            case ast.Call():
                return self._call(node)
            case ast.Subscript(value=value):
                return self._evaluate(value)
            case ast.Attribute(attr="pi"):
                return symbol("π")
            case _:
                parts = (self._evaluate(item) for item in ast.iter_child_nodes(node) if isinstance(item, ast.expr))
                return self._form(f"{type(node).__name__}({','.join(map(_text, parts))})", record=False)

    def _flat(self, node: ast.BinOp, kind: str) -> Known:
        """Evaluate a sum or product with any number of operands as one operation."""
        operands: list[tuple[type[ast.operator], Known]] = []
        left: ast.expr = node
        alike = ("+",) if kind == "+" else ("*", "/")
        while isinstance(left, ast.BinOp) and _SIGNS.get(type(left.op)) in alike:
            kind = "/" if _SIGNS[type(left.op)] == "/" else kind
            operands.append((type(left.op), self._evaluate(left.right)))
            left = left.left
        operands.append((ast.Add if kind == "+" else ast.Mult, self._evaluate(left)))
        operands.reverse()
        known = [(op, value) for op, value in operands if not isinstance(value, Form)]
        if len(known) < len(operands):
            texts = sorted(f"{_BEFORE.get(op, '')}{_text(value)}" for op, value in operands)
            return self._form(f"({('+' if kind == '+' else '*').join(texts)})")
        total: Value = 0 if kind == "+" else 1
        for op, value in known:
            total = _combine(total, op, value)
        return record_operation(
            self.operations, kind, [negate(value) if op is ast.Sub else value for op, value in known], total
        )

    def _other(self, left: Known, op: ast.operator, right: Known) -> Known:
        if isinstance(left, Form) or isinstance(right, Form):
            return self._form(f"({_text(left)}{type(op).__name__}{_text(right)})")
        if isinstance(op, ast.Pow):
            value = root(left) if right == Fraction(1, 2) else power(left, right)
            return record_operation(self.operations, "^", [left, right], value)
        if isinstance(op, ast.Mod) and isinstance(left, int) and isinstance(right, int) and right:
            return record_operation(self.operations, "%", [left, right], left % right)
        return Form("v")

    def _call(self, node: ast.Call) -> Known:
        name = _call_name(node)
        values = [
            self._evaluate(argument.value if isinstance(argument, ast.Starred) else argument) for argument in node.args
        ]
        if name in self.functions and not values:
            return self.functions[name]
        if name in _TRANSPARENT and values:
            return values[0]
        plain = [value for value in values if not isinstance(value, Form)]
        if len(plain) == len(values) and plain:
            known = self._known_call(name, plain)
            if known is not None:
                return known
        if name == "sum" and len(node.args) == 1 and isinstance(node.args[0], ast.List | ast.Tuple):
            return self._sum_elements(node.args[0].elts)
        return self._form(f"{'f' if name in self.functions else name}({','.join(map(_text, values))})")

    def _known_call(self, name: str, values: Sequence[Value]) -> Known | None:
        match name, values:
            case "sqrt", [value]:
                return record_operation(self.operations, "^", values, root(value))
            case "factorial", [int() as value] if 0 <= value <= 60:
                return record_operation(self.operations, "!", values, factorial(value))
            case "comb" | "binomial", [int() as n, int() as k] if 0 <= k <= n <= 60:
                self.operations.append(Computation("!", (str(n), str(k)), f"C({n},{k})"))
                return prod(range(n - k + 1, n + 1)) // factorial(k)
            case _ if name in _INTEGER_FUNCTIONS and all(isinstance(value, int) for value in values):
                whole = [value for value in values if isinstance(value, int)]
                return _INTEGER_FUNCTIONS[name](*whole)
            case "Eq", [left, right]:
                return add(left, negate(right))
            case "solve", [Polynomial() as value, *_]:
                solution = linear_root(value)
                if solution is not None:
                    self.operations.append(Computation("=", (), name_value(solution)))
                return solution
        return None

    def _sum_elements(self, elements: Sequence[ast.expr]) -> Known:
        values = [self._evaluate(element) for element in elements]
        total: Value = 0
        for value in values:
            if isinstance(value, Form):
                return self._form(f"({'+'.join(sorted(map(_text, values)))})")
            total = add(total, value)
        return record_operation(self.operations, "+", [value for value in values if not isinstance(value, Form)], total)

    def _form(self, text: str, *, record: bool = True) -> Form:
        form = Form(text if len(text) <= _LONGEST else blake2b(text.encode(), digest_size=8).hexdigest())
        if record:
            self.operations.append(Computation("#", (), form))
        return form


def _combine(total: Value, op: type[ast.operator], value: Value) -> Value:
    if op is ast.Add:
        return add(total, value)
    if op is ast.Sub:
        return add(total, negate(value))
    if op is ast.Mult:
        return multiply(total, value)
    quotient = divide(total, value)
    if op is ast.FloorDiv and not isinstance(quotient, Polynomial):
        return quotient.numerator // quotient.denominator
    return quotient


def _exact(value: int | float) -> Value:
    if isinstance(value, int):
        if value.bit_length() > 64:
            raise NoValueError("the number is too long")
        return value
    # parse the decimal as written; infinity is not a number here
    exact = Fraction(repr(value)) if value - value == 0 else None
    if exact is None:
        raise NoValueError("the number is too long")
    return exact.numerator if exact.denominator == 1 else exact


def _call_name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "f")


def _names(targets: Iterable[ast.expr]) -> list[str]:
    return [item.id for target in targets for item in ast.walk(target) if isinstance(item, ast.Name)]


def _text(value: Known) -> str:
    return value if isinstance(value, Form) else name_value(value)
