"""The spec: which lightning indexer a model has, as a frozen model that refuses what it cannot mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, PydanticKnownError, core_schema

from v4gen.diagnostic import quoted
from v4gen.read import naming
from v4gen.read.rules import conflicts
from v4gen.read.source import unprintable

Target = Literal["cpu", "sm_80", "sm_90a", "sm_100a", "gfx942"]

#: The largest size: kernels hold sizes and indices as int32.
LARGEST = 2**31 - 1

# The least and greatest positive normal float32.
_FLOAT32 = (2.0**-126, 2.0**128 - 2.0**104)

#: The error type of a broken rule between keys.
CONFLICT = "conflict"

_K = TypeVar("_K")
_V = TypeVar("_V")

_REFUSED_ACTIVATION = (
    "`activation` is always `relu` here: the operator sums weighted relu scores over the heads, and its selection "
    "(plateaus of exact zeros) and gradients rest on that; without it, as in MiniMax MSA, it is another operator"
)
_REFUSED_HEAD_WEIGHTS = (
    "`head_weights` is always `true` here: each query weighs its heads, and those weights get a gradient; an indexer "
    "without them, as in Qwen QSA, is another operator"
)
_REFUSED_POOLING = (
    "`pooling` is always `none` here: the operator takes keys that are already compressed; gated pooling inside it, as "
    "in GLM-5.3, would make the gate an input with a gradient, and is another operator"
)


class FrozenMapping(Mapping[_K, _V]):
    """A mapping that cannot change, so that a spec can be hashed, pickled and shared."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[_K, _V]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: _K) -> _V:
        return self._items[key]

    def __iter__(self) -> Iterator[_K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._items!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        # Checked, written out and described as the dict that it freezes.
        key, value = get_args(source)
        thawed = handler.generate_schema(dict[key, value])  # type: ignore[valid-type]
        return core_schema.no_info_before_validator_function(
            lambda given: dict(given) if isinstance(given, cls) else given,
            core_schema.no_info_after_validator_function(cls, thawed),
            serialization=core_schema.wrap_serializer_function_ser_schema(
                lambda frozen, write: write(dict(frozen)), schema=thawed
            ),
        )


def _error(code: str, message: str, hint: str | None = None) -> PydanticCustomError:
    # The message goes in as a value: it quotes the user's text, whose braces are no placeholders.
    return PydanticCustomError(code, "{message}", {"message": message, "hint": hint})


def _check_name(name: str) -> str:
    fault = naming.name_fault(name)
    if fault is not None:
        raise _error("bad-name", f"the name {quoted(name)} {fault}", naming.name_hint(name))
    return name


def _check_schedule_name(name: str) -> str:
    if not naming.is_plain(name):
        raise _error("bad-name", f"the schedule name {quoted(name)} is not made of {naming.PLAIN}")
    return name


def _check_text(text: str) -> str:
    character = unprintable(text)
    if character is not None:
        raise _error("control-character", f"a text has no control characters other than newline, found {character}")
    return text


def _refuse_other(only: str | bool, reason: str) -> Callable[[object], object]:
    def check(value: object) -> object:
        if type(value) is not type(only):  # Literal[True] by itself takes the integer 1
            raise PydanticKnownError("literal_error", {"expected": repr(only)})
        if value != only:
            raise _error("other-operator", reason, "remove the key")
        return value

    return check


def _list_as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _check_distinct(targets: tuple[Target, ...]) -> tuple[Target, ...]:
    errors = [
        InitErrorDetails(type=_error("duplicate-target", f"target `{target}` is given twice"), loc=(n,), input=target)
        for n, target in enumerate(targets)
        if target in targets[:n]
    ]
    if errors:
        raise ValidationError.from_exception_data("targets", errors)
    return targets


def _nothing_pinned() -> FrozenMapping[Target, FrozenMapping[str, int]]:
    return FrozenMapping({})


Text = Annotated[str, AfterValidator(_check_text)]
ScheduleNumber = Annotated[int, Field(ge=0, le=LARGEST)]
ScheduleName = Annotated[str, AfterValidator(_check_schedule_name)]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", serialize_by_alias=True)


class Backward(_Model):
    """How the backward kernel accumulates."""

    deterministic: bool = Field(
        default=False, description="Whether the gradients have the same bits on every run; `false` may use atomics."
    )


class Forward(_Model):
    """What the forward pass may use."""

    scratch_mib: int = Field(
        default=256, ge=1, le=65536, description="The most scratch memory for scores that a forward takes, in MiB."
    )


class Spec(_Model):
    """One lightning indexer: sizes, tensor layout, mask and targets. Equal specs give equal packages.

    Raises pydantic.ValidationError when a value, or a pair of values, has no meaning.
    """

    schema_id: Literal["v4gen/1"] = Field(alias="schema", description="The version of this key list.")
    name: Annotated[str, AfterValidator(_check_name)] = Field(
        description="The name of the generated package and its folder; no Python keyword, builtin or standard module.",
        json_schema_extra={"pattern": f"^{naming.PATTERN}$", "maxLength": naming.MAX_LENGTH},
    )
    interface: Literal["seed", "operator"] = Field(
        default="operator", description="`seed` adds the seed's names; it needs layout SBHD, mask causal, width min."
    )
    description: Text = Field(default="", description="What the indexer is, in words, for the package's docstrings.")
    origin: Text = Field(default="", description="Where the numbers come from.")
    heads: int = Field(ge=1, le=128, description="H, the number of index heads.")
    dim: int = Field(ge=16, le=256, multiple_of=16, description="D, the width of an index head.")
    topk: int = Field(ge=1, le=4096, description="K, the number of keys selected for each query.")
    compress_ratio: int = Field(ge=1, le=LARGEST, description="r, the number of tokens that one key stands for.")
    layout: Literal["SBHD", "BSHD", "THD"] = Field(
        default="BSHD", description="The order of q's axes: sequence S, batch B, heads H, dim D; T is packed tokens."
    )
    mask: Literal["causal", "ranges", "varlen"] = Field(
        default="causal",
        description="Which keys a query may see: the closed windows before it, given ranges, or its own document's.",
    )
    width: Literal["min", "topk"] = Field(
        default="topk", description="The columns of the result: K always, or the lesser of K and the number of keys."
    )
    order: Literal["score", "index"] = Field(
        default="score", description="The order of the selected keys: best score first, or ascending."
    )
    dtype: Literal["bfloat16", "float16"] = Field(
        default="bfloat16", description="The type of q and k; weights and scores are float32."
    )
    index_base: Literal["global", "local"] = Field(
        default="global",
        description="With mask varlen: indices into all packed keys, or into the query's own document.",
    )
    weight_scale: float = Field(
        default=1.0,
        ge=_FLOAT32[0],
        le=_FLOAT32[1],
        description="A constant that every head weight is multiplied by, in float32.",
    )
    activation: Annotated[Literal["relu"], BeforeValidator(_refuse_other("relu", _REFUSED_ACTIVATION))] = Field(
        default="relu", description="What is applied to each head's product; this operator knows only relu."
    )
    head_weights: Annotated[Literal[True], BeforeValidator(_refuse_other(True, _REFUSED_HEAD_WEIGHTS))] = Field(
        default=True, description="Whether each query weighs its heads; in this operator it always does."
    )
    pooling: Annotated[Literal["none"], BeforeValidator(_refuse_other("none", _REFUSED_POOLING))] = Field(
        default="none", description="What compresses keys inside the operator; in this one nothing does."
    )
    backward: Backward = Field(default=Backward(), description="Settings of the backward pass.")
    forward: Forward = Field(default=Forward(), description="Settings of the forward pass.")
    targets: Annotated[tuple[Target, ...], BeforeValidator(_list_as_tuple), AfterValidator(_check_distinct)] = Field(
        default=("cpu", "sm_90a"),
        min_length=1,
        description="What the package carries a schedule for.",
        json_schema_extra={"uniqueItems": True},
    )
    schedule: FrozenMapping[Target, FrozenMapping[ScheduleName, ScheduleNumber]] = Field(
        default_factory=_nothing_pinned,
        description="Pinned schedules: for a target, tile sizes and the like by name.",
        json_schema_extra={"default": {}},
    )

    @model_validator(mode="after")
    def _check_conflicts(self) -> Spec:
        values = values_by_key(self)
        default = spec_defaults()
        written = [key for key, value in values.items() if key not in default or value != default[key]]
        errors = [
            InitErrorDetails(type=_error(CONFLICT, found.message, found.hint), loc=(found.key,), input=None)
            for found in conflicts(values, written)
        ]
        if errors:
            raise ValidationError.from_exception_data(type(self).__name__, errors)
        return self


def values_by_key(spec: Spec) -> dict[str, Any]:
    """The values of `spec` by the keys that a spec file gives them."""
    return {field.alias or name: getattr(spec, name) for name, field in Spec.model_fields.items()}


def spec_defaults() -> dict[str, Any]:
    """The default of each key that has one, by the key that a spec file gives it."""
    return {
        field.alias or name: field.get_default(call_default_factory=True)
        for name, field in Spec.model_fields.items()
        if not field.is_required()
    }
