"""What a setting is made of: its name, how its values are read and checked, and what people are told about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from aioqueue.definitions._environment import variable_of
from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._numbers import read_duration, read_whole_number
from aioqueue.vocabulary._safe_text import safe_repr, visible
from aioqueue.vocabulary._time import seconds

if TYPE_CHECKING:
    from aioqueue.definitions._environment import Environment

__all__ = ["Choice", "Duration", "Kind", "Names", "Setting", "Text", "Visible", "WholeNumber", "YesNo"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


class Kind(Protocol[T_co]):
    """How the values of a setting are written and checked. A refused one is named as the caller says: setting or variable."""

    @property
    def metavar(self) -> str | None:
        """What stands for the value in the command line's help; None for an option without one."""
        ...

    def from_text(self, text: str, name: str) -> T_co:
        """Read what stands in a variable or after an option."""
        ...

    def from_argument(self, value: object, name: str) -> T_co:
        """Check what a program has given."""
        ...

    def written(self, value: Any) -> str:
        """How people read a value."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Setting(Generic[T]):
    """One setting, the same for programs, variables and the command line. They stand in `_setting_table`.

    Attributes:
        name: Of the keyword argument; the variable's and the option's are made of it.
        kind: How its values are read.
        default: What it is where nobody says anything.
        what: What it does, in a sentence or two.
        of: Whose keyword argument it is, such as `Worker`; nobody's, if it's the command line's alone.
        group: Under which heading the help of `aioqueue worker` has it.
        shown: The default for people, where the value doesn't say it.
        more: What only the page adds, in Markdown.
        option: Whether the command line has an option for it: not for a secret, which others on the machine could see.
    """

    name: str
    kind: Kind[T]
    default: T
    what: str
    of: tuple[str, ...]
    group: str
    shown: str = ""
    more: str = ""
    option: bool = True

    @property
    def variable(self) -> str:
        """Such as `AIOQUEUE_LEASE`."""
        return variable_of(self.name)

    @property
    def flag(self) -> str:
        """The command line's option, such as `--lease`, or `--tracing/--no-tracing`."""
        dashed = self.name.replace("_", "-")
        return f"--{dashed}/--no-{dashed}" if isinstance(self.kind, YesNo) and self.kind.pair else f"--{dashed}"

    @property
    def shown_default(self) -> str:
        """The default as people read it."""
        return self.shown or self.kind.written(self.default)

    def read(self, argument: object, environment: Environment, *, default: T | None = None) -> T:
        """Give the argument, else what the variable says, else the default.

        Arguments:
            argument: None if nobody gave one.
            environment: The variables.
            default: Another one.

        Raises:
            ConfigurationError: It can't be read or is out of its range; it's named.
        """
        if argument is not None:
            return self.kind.from_argument(argument, self.name)
        text = environment.text(self.variable)
        if text is not None:
            return self.kind.from_text(text, self.variable)
        return self.default if default is None else default

    def is_set(self, argument: object, environment: Environment) -> bool:
        """Whether somebody has set it, in either way."""
        return argument is not None or environment.text(self.variable) is not None

    def name_of(self, argument: object, environment: Environment) -> str:
        """What to call it in errors: where its value came from."""
        return self.variable if argument is None and self.is_set(None, environment) else self.name


class Duration:
    """Seconds.

    Arguments:
        least: The shortest.
        positive: Whether zero is refused.
    """

    metavar = "DURATION"

    def __init__(self, *, least: float = 0.0, positive: bool = False) -> None:
        self._least = least
        self._positive = positive

    def from_text(self, text: str, name: str) -> float:
        """Read seconds, or a number with a unit."""
        return self._checked(read_duration(text, name), name)

    def from_argument(self, value: Any, name: str) -> float:
        """Check seconds, or a timedelta."""
        return self._checked(seconds(value, name, positive=self._positive), name)

    def written(self, value: Any) -> str:
        """Seconds with their unit."""
        return f"{value:g} s"

    def _checked(self, number: float, name: str) -> float:
        if number < self._least:
            raise ConfigurationError(f"{name} must be at least {self._least:g} s, not {number:g} s")
        if self._positive and number == 0:
            raise ConfigurationError(f"{name} must be positive, not 0 s")
        return number


class WholeNumber:
    """A whole number from `least` to `most`."""

    def __init__(self, least: int, most: int, *, metavar: str = "NUMBER") -> None:
        self._least = least
        self._most = most
        self.metavar = metavar

    def from_text(self, text: str, name: str) -> int:
        """Read digits, with a sign if they have one."""
        return self._checked(read_whole_number(text, name), name)

    def from_argument(self, value: object, name: str) -> int:
        """Check an integer."""
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigurationError(f"{name} must be a whole number, not {value!r}")
        return self._checked(value, name)

    def written(self, value: Any) -> str:
        """In digits, as it's typed."""
        return str(value)

    def _checked(self, number: int, name: str) -> int:
        if not self._least <= number <= self._most:
            raise ConfigurationError(f"{name} must be from {self._least:,} to {self._most:,}, not {number}")
        return number


class YesNo:
    """On or off.

    Arguments:
        pair: Whether the command line has an option for off, too.
    """

    metavar = None

    def __init__(self, *, pair: bool = True) -> None:
        self.pair = pair

    def from_text(self, text: str, name: str) -> bool:
        """Read 1, 0, or a word for one of them."""
        if (lower := text.lower()) not in _YES | _NO:
            raise ConfigurationError(f"{name} must be 1 or 0 (or true, false, yes, no, on, off), not {text!r}")
        return lower in _YES

    def from_argument(self, value: object, name: str) -> bool:
        """Check True or False."""
        if not isinstance(value, bool):
            raise ConfigurationError(f"{name} must be True or False, not {value!r}")
        return value

    def written(self, value: Any) -> str:
        """In a word."""
        return "on" if value else "off"


class Text:
    """Some text; spaces around it don't matter."""

    def __init__(self, metavar: str = "TEXT") -> None:
        self.metavar = metavar

    def from_text(self, text: str, name: str) -> str:
        """Take it as it is."""
        return self.from_argument(text, name)

    def from_argument(self, value: object, name: str) -> str:
        """Check that it says something."""
        if not isinstance(value, str) or not value.strip():
            raise ConfigurationError(f"{name} must be a text, not {value!r}")
        return value.strip()

    def written(self, value: Any) -> str:
        """As it's typed."""
        return str(value)


class Visible(Text):
    """Some text that people see in a line of its own.

    Arguments:
        longest: Characters at most.
    """

    def __init__(self, metavar: str, longest: int) -> None:
        super().__init__(metavar)
        self._longest = longest

    def from_argument(self, value: object, name: str) -> str:
        """Check that it can be seen."""
        text = super().from_argument(value, name)
        if len(text) > self._longest or visible(text) != text:
            raise ConfigurationError(f"{name} must be at most {self._longest} visible characters, not {safe_repr(text)}")
        return text


class Choice(Text):
    """One of a few words, in any case."""

    def __init__(self, *words: str, metavar: str) -> None:
        super().__init__(metavar)
        self.words = words

    def from_argument(self, value: object, name: str) -> str:
        """Check that it's one of them."""
        word = super().from_argument(value, name).lower()
        if word not in self.words:
            raise ConfigurationError(f"{name} must be {', '.join(self.words[:-1])} or {self.words[-1]}, not {value!r}")
        return word


class Names:
    """Several names; in a variable or an option they're separated by commas."""

    metavar = "NAMES"

    def from_text(self, text: str, name: str) -> tuple[str, ...]:
        """Read at least one."""
        names = tuple(each.strip() for each in text.split(",") if each.strip())
        if not names:
            raise ConfigurationError(f"{name} must be names, separated by commas, not {text!r}")
        return names

    def from_argument(self, value: object, name: str) -> tuple[str, ...]:
        """Check that there are several: a text alone would be read letter by letter."""
        several = isinstance(value, Iterable) and not isinstance(value, str)
        names = tuple(cast("Iterable[object]", value)) if several else (None,)
        if not all(isinstance(each, str) for each in names):
            raise ConfigurationError(f"{name}= takes several, such as {name}=['mail.send'], not {value!r}")
        return cast("tuple[str, ...]", names)

    def written(self, value: Any) -> str:
        """As in a variable."""
        return ",".join(value)
