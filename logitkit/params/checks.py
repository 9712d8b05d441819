"""Checks at the door: a value in, the same value plain and immutable out, or a ValueError.

The vocabulary in which `fields` is written; it knows nothing of the rest of the package.
A message here says only what is wrong: `fields.checked` adds field, value and range.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from numbers import Real
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Check = Callable[[Any], Any]

INT_MAX = 2**31 - 1  # counts and ids live in int32 columns
FLOAT_MAX = 3.4028234663852886e38  # the largest float32: every number ends in a float32 column
DIVISOR_MIN = 1e-30  # logits divided by less than this leave the range of float32


class FrozenDict(Mapping[K, V], Generic[K, V]):
    """An immutable mapping that can be compared, hashed, copied and pickled (a proxy cannot be)."""

    __slots__ = ("_dict",)

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        self._dict: dict[K, V] = dict(items)

    def __getitem__(self, key: K) -> V:
        return self._dict[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._dict)

    def __len__(self) -> int:
        return len(self._dict)

    def __repr__(self) -> str:
        return repr(self._dict)

    def __hash__(self) -> int:
        return hash(frozenset(self._dict.items()))

    def __reduce__(self) -> tuple[type[FrozenDict[K, V]], tuple[dict[K, V]]]:
        return FrozenDict, (self._dict,)


def shown(value: Any) -> str:
    """`value` as an error shows it: its repr, without the middle of a long one."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:100]} ... {text[-60:]}"


def kind(value: Any) -> str:
    """The type of `value` with its article: "a bool", "an int"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def _plain(value: Any) -> Any:
    """numpy and torch scalars as Python's own; everything else as it is."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    return value


def number(low: float, high: float = FLOAT_MAX, *, zero: bool = False, off: Any = None) -> Check:
    """A check for finite numbers in [low, high].

    `zero` admits 0 below low; `off` is a second spelling of 0.
    """

    def check(value: Any) -> float:
        value = _plain(value)
        if isinstance(value, bool) or not isinstance(value, Real):
            raise ValueError(f"{kind(value)} is not a number")
        try:
            result = float(value) + 0.0  # -0.0 becomes 0.0
        except OverflowError:
            raise ValueError("it is too large") from None
        if not math.isfinite(result):
            raise ValueError("it is not finite")
        if (zero and result == 0) or (off is not None and result == off):
            return 0.0
        if not low <= result <= high:
            raise ValueError("it is out of range")
        return result

    return check


def above(low: float) -> float:
    """The smallest number above low, which makes an open end a closed one."""
    return math.nextafter(low, math.inf)


def integer(low: int, high: int = INT_MAX, *, off: int | None = None) -> Check:
    """A check for integers in [low, high]; `off` is another spelling of 0."""

    def check(value: Any) -> int:
        value = _plain(value)
        if isinstance(value, bool):
            raise ValueError("a bool is not an integer")
        try:
            result = operator.index(value)
        except TypeError:
            raise ValueError(f"{kind(value)} is not an integer") from None
        if off is not None and result == off:
            return 0
        if not low <= result <= high:
            raise ValueError("it is out of range")
        return result

    return check


finite = number(-FLOAT_MAX)
token_id = integer(0)


def optional(check: Check) -> Check:
    """A check that lets None through."""
    return lambda value: None if value is None else check(value)


def flag(value: Any) -> bool:
    """A bool, not a number that reads like one."""
    value = _plain(value)
    if not isinstance(value, bool):
        raise ValueError(f"{kind(value)} is not a bool")
    return value


def one_of(*names: str) -> Check:
    """A check for one of a few words."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError("it is none of them")
        return value

    return check


def anything(value: Any) -> Any:
    """The value as it is: checked elsewhere."""
    return value


def text(value: Any) -> str:
    """A non-empty string."""
    if not isinstance(value, str):
        raise ValueError(f"{kind(value)} is not a string")
    if not value:
        raise ValueError("the empty string matches everywhere")
    return str(value)


def _iterated(value: Any) -> list[Any]:
    """The entries of a sequence, array or tensor; text and mappings are not sequences here."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ValueError(f"{kind(value)} is not a sequence")
    return list(value)


def entries(check: Check, *, lone: type | None = None, least: int = 0, sort: bool = False) -> Check:
    """A check for sequences: each entry passes `check`, duplicates go, the result is a tuple.

    A single value of type `lone` counts as a sequence of one.
    """

    def check_all(value: Any) -> tuple[Any, ...]:
        result = []
        for entry in [value] if lone and isinstance(value, lone) else _iterated(value):
            try:
                result.append(check(entry))
            except ValueError as error:
                raise ValueError(f"entry {shown(entry)}: {error}") from None
        if len(result) < least:
            raise ValueError("it is empty")
        return tuple(sorted(set(result)) if sort else dict.fromkeys(result))

    return check_all


def id_sequence(value: Any) -> tuple[int, ...]:
    """One non-empty sequence of token ids: order and repeats matter."""
    ids = tuple(token_id(entry) for entry in _iterated(value))
    if not ids:
        raise ValueError("it is empty")
    return ids


def breaker(value: Any) -> str | tuple[int, ...]:
    """A DRY sequence breaker: text, or token ids."""
    return text(value) if isinstance(value, str) else id_sequence(value)


def logit_bias(value: Any) -> FrozenDict[int, float]:
    """Token ids (ints or digits) to biases, sorted by id; -inf is a ban, +inf is refused."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{kind(value)} is not a mapping")
    biases: dict[int, float] = {}
    for key, bias in value.items():
        try:
            digits = isinstance(key, str) and key.isascii() and key.isdigit()
            token = token_id(int(key) if digits else key)
            bias = _plain(bias)
            banned = isinstance(bias, float) and bias == -math.inf
            bias = bias if banned else finite(bias)
        except ValueError as error:
            raise ValueError(f"entry {shown(key)}: {shown(bias)}: {error}") from None
        if token in biases:
            raise ValueError(f"token {token} is given twice")
        biases[token] = bias
    return FrozenDict(sorted(biases.items()))


def frozen(value: Any) -> Any:
    """`value` with lists as tuples, mappings as `FrozenDict` and sets as frozensets, inside too."""
    if isinstance(value, Mapping):
        return FrozenDict({key: frozen(entry) for key, entry in value.items()})
    if isinstance(value, list | tuple):
        return tuple(frozen(entry) for entry in value)
    return frozenset(value) if isinstance(value, set) else value
