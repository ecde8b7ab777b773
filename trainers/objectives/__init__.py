"""Parse objectives from expressions such as ``iac:alpha=0.5`` or ``rloo+negative_only+kl:kind=k3,beta=0.01``.

Each file in a subfolder is one part of an objective, or a preset. The name of the file is the name of the part. To add
one, write a file ``NAME.py`` that defines ``PART`` (a subclass of a kind in ``contract``) or ``PRESET``. An expression
joins names with ``+``. Settings follow a name after ``:``. Estimator, surrogate and aggregation are those of GRPO
unless the expression has others. A part that has no effect together with the others is an error. The parts are not
imported to list their names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from oversharp.diagnostics.records.errors import ConfigError

if TYPE_CHECKING:
    from oversharp.trainers.objectives.contract import Objective, Part, Preset

#: Default parts. They are added to an expression unless it has other parts of their kind.
DEFAULTS = "grpo+clip+seq_mean_token_mean"
#: Plus sign between names. A plus sign before a digit is part of a number such as 1e+3.
_JOINT = re.compile(r"\+(?![0-9])")

Setting = bool | int | float | str


@cache
def names() -> tuple[str, ...]:
    """Return the names of all parts and presets, sorted.

    >>> "grpo" in names() and "iac" in names() and "contract" not in names()
    True
    """
    return tuple(sorted(_paths()))


def module_of(name: str) -> ModuleType:
    """Import and return the module of a part or preset."""
    return import_module(_paths()[name])


@cache
def _paths() -> Mapping[str, str]:
    """Return name → import path of every part and preset."""
    here = Path(__file__).parent
    folders = [folder.name for folder in iter_modules([str(here)]) if folder.ispkg]
    return {
        module.name: f"{__name__}.{folder}.{module.name}"
        for folder in folders
        for module in iter_modules([str(here / folder)])
    }


@dataclass(frozen=True, kw_only=True)
class Term:
    """Name in an expression, with its settings as text."""

    name: str
    settings: Mapping[str, str]


def terms(expression: str) -> list[Term]:
    """Split an expression into terms, without loading torch. Raise ``ConfigError`` if it is invalid.

    >>> terms("rloo+iac:alpha=0.5,scale_matched=true")
    [Term(name='rloo', settings={}), Term(name='iac', settings={'alpha': '0.5', 'scale_matched': 'true'})]
    """
    parsed = []
    for text in _JOINT.split(expression):
        name, colon, listed = text.strip().partition(":")
        _check_name(name.strip(), expression)
        settings: dict[str, str] = {}
        for setting in listed.split(",") if colon else ():
            key, equals, value = (piece.strip() for piece in setting.partition("="))
            if not (key and equals and value) or key in settings:
                raise ConfigError(
                    f"algorithm {expression!r}: settings of {name}: {setting.strip()!r} is not NAME=VALUE, or "
                    f"repeated; write {name}:setting=value,setting=value"
                )
            settings[key] = value
        parsed.append(Term(name=name.strip(), settings=settings))
    return parsed


def parse(expression: str) -> Objective:
    """Return the objective of an expression. Loads torch.

    Raises ``ConfigError`` for unknown names and settings, values out of range, two parts of a kind that permits only
    one, and a part that has no effect together with the others.
    """
    from oversharp.trainers.objectives import composition
    from oversharp.trainers.objectives.contract import Objective

    chosen = _parts(expression)
    for part in list(chosen.values()):
        for brought_name, brought in _parts(part.brings).items() if part.brings else ():
            if brought_name not in chosen and not any(_same_place(brought, other) for other in chosen.values()):
                chosen[brought_name] = brought
    for name, part in _parts(DEFAULTS).items():
        if not any(_same_place(part, other) for other in chosen.values()):
            chosen[name] = part
    by_kind: dict[str, list[Any]] = {}
    for part in chosen.values():
        by_kind.setdefault(kind_of(type(part)), []).append(part)

    def find_single(kind: str) -> Any:
        return next(iter(by_kind.get(kind, [])), None)

    objective = Objective(
        expression="+".join(_term_text(name, part) for name, part in chosen.items()),
        shapings=tuple(by_kind.get("shaping", ())),
        estimator=find_single("estimator"),
        calibrations=tuple(by_kind.get("calibration", ())),
        surrogate=find_single("surrogate"),
        aggregation=find_single("aggregation"),
        penalties=tuple(by_kind.get("penalty", ())),
        correction=find_single("correction"),
        rehearsal=find_single("rehearsal"),
        decoding=find_single("decoding"),
        resampling=find_single("resampling"),
    )
    for fault in composition.find_faults(objective):
        raise ConfigError(f"algorithm {expression!r}: {fault}")
    return objective


def settings_as_written(expression: str) -> dict[str, list[str]]:
    """Return name of a part → names of its settings in the expression. Loads torch.

    >>> settings_as_written("dapo:high=0.3+overlong:length=512")
    {'clip': ['high'], 'overlong': ['length']}
    """
    by_part: dict[str, list[str]] = {}
    for term in terms(expression):
        entry = _load(term.name)
        parts = [term.name] if isinstance(entry, type) else [inner.name for inner in terms(entry.expression)]
        for setting in term.settings:
            for name in parts:
                if setting in _field_types(_load(name)):
                    by_part.setdefault(name, []).append(setting)
    return by_part


#: Kinds of parts of which an objective may have several. It has at most one part of each other kind.
_MANY = frozenset({"shaping", "calibration", "penalty"})


#: Kinds of parts in the order in which a step uses them. They are the class names of ``contract`` in lower case.
KINDS = (
    "shaping",
    "estimator",
    "calibration",
    "surrogate",
    "penalty",
    "aggregation",
    "correction",
    "rehearsal",
    "decoding",
    "resampling",
)


def kind_of(part: type[Part]) -> str:
    """Return the kind of a part."""
    return next(base.__name__.lower() for base in part.__mro__ if base.__name__.lower() in KINDS)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Part or preset in the list that ``oversharp train --list`` prints.

    ``settings`` are the settings with their defaults, as in an expression; ``...`` is a required setting. For a preset,
    they are its expression. ``brings`` are further parts that are added unless the expression has others of their kind.
    """

    name: str
    kind: str
    settings: str
    brings: str
    title: str
    source: str


def entries() -> list[Entry]:
    """Return all presets, then all parts in the order of ``KINDS``. Loads torch.

    >>> [entry for entry in entries() if entry.name == "iac"]
    [Entry(name='iac', kind='calibration', settings='alpha=1.0,scale_matched=false,s_plus=correct', brings='',
           title='Inverse-success Advantage Calibration', source='arXiv 2601.15609, section 3.1')]
    """
    listed = [_entry(name, _load(name)) for name in names()]
    order = ["preset", *KINDS]
    return sorted(listed, key=lambda entry: (order.index(entry.kind), entry.name))


def _entry(name: str, entry: type[Part] | Preset) -> Entry:
    if not isinstance(entry, type):
        return Entry(
            name=name, kind="preset", settings=entry.expression, brings="", title=entry.title, source=entry.source
        )
    defaults = [
        f"{field.name}={'...' if field.default is MISSING else _text(field.default)}"
        for field in fields(entry)  # type: ignore[arg-type]
    ]
    return Entry(
        name=name,
        kind=kind_of(entry),
        settings=",".join(defaults),
        brings=entry.brings,
        title=entry.title,
        source=entry.source,
    )


def _check_name(name: str, expression: str) -> None:
    known = names()
    if name not in known:
        nearest = get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(nearest)}?" if nearest else f"choose from {', '.join(known)}"
        raise ConfigError(f"algorithm {expression!r}: unknown objective {name!r}; {hint}")


def _load(name: str) -> type[Part] | Preset:
    module = module_of(name)
    entry: type[Part] | Preset = module.PRESET if hasattr(module, "PRESET") else module.PART
    return entry


def _parts(expression: str) -> dict[str, Part]:
    """Return name → part, with presets expanded. Parts in the expression replace those of a preset.

    Raises ``ConfigError`` for a repeated part, or for two parts of a kind that permits only one.
    """
    chosen: dict[str, tuple[Part, bool]] = {}
    for term in terms(expression):
        entry = _load(term.name)
        is_named = isinstance(entry, type)
        new = (
            {term.name: _build(term.name, entry, term.settings)}
            if isinstance(entry, type)
            else _expand_preset(term.name, entry, term.settings)
        )
        for name, part in new.items():
            rivals = [other for other in chosen if other == name or _same_place(chosen[other][0], part)]
            if any(chosen[other][1] == is_named for other in rivals):
                both = f"{name} is repeated" if name in rivals else f"{rivals[0]} and {name} are both of the kind "
                kind = "" if name in rivals else kind_of(type(part))
                raise ConfigError(f"algorithm {expression!r}: {both}{kind}; keep one of them")
            if rivals and not is_named:
                continue
            for other in rivals:
                del chosen[other]
            chosen[name] = (part, is_named)
    return {name: part for name, (part, _) in chosen.items()}


def _expand_preset(name: str, preset: Preset, settings: Mapping[str, str]) -> dict[str, Part]:
    """Return the parts of a preset. Each setting is passed to the only part that has it."""
    written = terms(preset.expression)
    taken: dict[str, dict[str, str]] = {term.name: dict(term.settings) for term in written}
    for key, value in settings.items():
        owners = [term.name for term in written if key in _field_types(_load(term.name))]
        if len(owners) != 1:
            problem = f"{' and '.join(owners)} both have" if owners else f"none of its parts {preset.expression} has"
            raise ConfigError(f"algorithm {name}: {problem} a setting {key!r}; list the parts instead of {name}")
        taken[owners[0]][key] = value
    return {part: _build(part, _load(part), given) for part, given in taken.items()}


def _build(name: str, entry: type[Part] | Preset, written: Mapping[str, str]) -> Part:
    if not isinstance(entry, type):
        raise ConfigError(f"algorithm {name}: a preset cannot contain another preset")
    types = _field_types(entry)
    given: dict[str, Setting] = {}
    for key, text in written.items():
        if key not in types:
            nearest = get_close_matches(key, types, n=1, cutoff=0.4)
            hint = f"did you mean {nearest[0]}?" if nearest else f"it has {', '.join(types) or 'no settings'}"
            raise ConfigError(f"algorithm {name}: unknown setting {key!r}; {hint}")
        given[key] = _value(name, key, text, types[key])
    for field in fields(entry):  # type: ignore[arg-type]
        if field.default is MISSING and field.name not in given:
            example = f"{name}:{field.name}=..."
            raise ConfigError(f"algorithm {name}: {field.name} is required, {_ARTICLES[types[field.name]]}: {example}")
    try:
        return entry(**given)
    except ValueError as error:
        raise ConfigError(f"algorithm {name}: {error}") from error


@cache
def _field_types(entry: type[Part] | Preset) -> dict[str, Any]:
    if not isinstance(entry, type):
        return {}
    hints = get_type_hints(entry)
    return {field.name: hints[field.name] for field in fields(entry)}  # type: ignore[arg-type]


def _value(name: str, key: str, text: str, kind: Any) -> Setting:
    """Convert the text of a setting to the type of its field."""
    options = [option for option in get_args(kind) if option is not type(None)]
    if get_origin(kind) is Literal:
        if text in options:
            return text
        raise ConfigError(f"algorithm {name}: {key}={text} is not one of {', '.join(map(str, options))}")
    plain = options[0] if options else kind
    if plain is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if plain in (int, float):
        try:
            return int(text) if plain is int else float(text)
        except ValueError:
            pass
    elif plain is str:
        return text
    raise ConfigError(f"algorithm {name}: {key}={text} is not {_ARTICLES[plain]}")


_ARTICLES = {bool: "true or false", int: "a whole number", float: "a number"}


def _same_place(part: Part, other: Part) -> bool:
    kind = kind_of(type(part))
    return kind == kind_of(type(other)) and kind not in _MANY


def _term_text(name: str, part: Part) -> str:
    """Return the term of a part in an expression, with the settings that differ from the defaults."""
    settings = [
        f"{field.name}={_text(getattr(part, field.name))}"
        for field in fields(part)  # type: ignore[arg-type]
        if getattr(part, field.name) != field.default
    ]
    return f"{name}:{','.join(settings)}" if settings else name


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
