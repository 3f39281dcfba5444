"""Errors a client gets: problem details, RFC 9457.

Members beyond the standard ones: `errors`, a list of `{field, message, expected}`, where `field`
is the path inside the request body (`match.src`) or the name of a path or query parameter.
"""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from http import HTTPStatus
from typing import Any

MEDIA_TYPE = "application/problem+json"

TYPE_PREFIX = "urn:pacer:problem:"


@dataclass(frozen=True)
class FieldError:
    """One error in a request: the field, the error, and the expected value."""

    field: str
    message: str
    expected: str


class FieldErrors(list[FieldError]):
    """The errors in a request, collected as they are found."""

    def add(self, field: str, message: str, expected: str) -> None:
        """Add an error."""
        self.append(FieldError(field, message, expected))

    def add_below(self, path: str, errors: Iterable[FieldError]) -> None:
        """Add the errors in a part of the request, whose fields are below a path."""
        self += [replace(error, field=path + error.field) for error in errors]


@dataclass
class Problem(Exception):  # noqa: N818 (RFC 9457's word)
    """Raised anywhere above the southbound; becomes the response.

    Attributes:
        status: HTTP status code.
        kind: last part of the `type` URI; stable, for programs.
        title: the kind of problem, the same text for all of its kind.
        detail: the explanation of this problem, for people.
        errors: the fields at fault.

    """

    status: int
    kind: str
    title: str
    detail: str
    errors: Sequence[FieldError] = field(default_factory=tuple)

    def __str__(self) -> str:
        return f"{self.title}: {self.detail}"

    def as_dict(self, instance: str) -> dict[str, Any]:
        """Return the JSON form; `instance` is the path of the request."""
        body: dict[str, Any] = {
            "type": TYPE_PREFIX + self.kind,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
        }
        if self.errors:
            body["errors"] = [asdict(error) for error in self.errors]
        return body


def invalid(resource: str, errors: Sequence[FieldError]) -> Problem:
    """Return the 422 for a request that names wrong values; `resource` as in "class 'video'"."""
    listed = "; ".join(f"{error.field}: {error.message}" for error in errors[:3])
    if len(errors) > 3:
        listed += f"; and {len(errors) - 3} more"
    return Problem(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "invalid",
        "The request has wrong values",
        f"{resource}: {listed}",
        errors,
    )


def not_found(kind: str, name: str, known: Iterable[str], where: str = "") -> Problem:
    """Return the 404 for a resource that does not exist, with a guess at the right name."""
    return Problem(
        HTTPStatus.NOT_FOUND,
        f"unknown-{kind}",
        f"There is no such {kind}",
        f"no {kind} {name!r}{where}{meant_of(name, known)}",
    )


def shorten(text: str) -> str:
    """Return a given text, cut at the end if it is long."""
    return text if len(text) <= 40 else text[:37] + "..."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" when a known name is close, else nothing."""
    close = difflib.get_close_matches(name, list(known)[:1000], n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def meant_of(name: str, known: Iterable[str]) -> str:
    """Return the same as `did_you_mean` or, if no name is close and there are few, all names."""
    names = list(known)
    listed = f"; there are: {', '.join(names)}" if 0 < len(names) <= 8 else ""
    return did_you_mean(name, names) or listed
