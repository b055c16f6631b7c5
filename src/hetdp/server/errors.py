"""What the server answers when it does not do what was asked: fixed texts, a code, an id; never what was sent."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from hetdp.errors import HetdpError

TEXTS = {
    400: ("malformed", "The body is not strict JSON."),
    401: ("sign-in", "Sign in first."),
    403: ("forbidden", "This is not allowed."),
    404: ("not-found", "There is nothing here."),
    405: ("method", "This address does not take that method."),
    409: ("conflict", "This is not possible now."),
    413: ("too-large", "The body is too large."),
    415: ("media-type", "The body has another type than this address takes."),
    422: ("unfit", "A field is missing, unknown, of the wrong type or outside its limits."),
    429: ("too-often", "Too many requests. Wait a minute."),
    500: ("internal", "Something went wrong here. The id below is in the server's log."),
    503: ("stopping", "The server is stopping."),
}
"""By status: a code for programs and a sentence for people."""


class RefusedError(HetdpError):
    """A request that is refused for a public reason.

    Attributes
    ----------
    status
        The HTTP status.
    code
        For programs.
    message
        For people; it may quote public parameters, never an answer.
    """

    def __init__(self, status: int, code: str | None = None, message: str | None = None) -> None:
        usual = TEXTS[status]
        self.status, self.code, self.message = status, code or usual[0], message or usual[1]
        super().__init__(self.message)


class Problem(BaseModel):
    """What went wrong: a code for programs, a sentence for people, an id that is in the log."""

    code: str
    message: str
    id: str


class ErrorBody(BaseModel):
    """The body of every error."""

    error: Problem


DOCUMENTED: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": text} for status, (_, text) in TEXTS.items()
}
"""For OpenAPI: any address may answer with any of these."""


def body(
    status: int, request_id: str, code: str | None = None, message: str | None = None
) -> dict[str, dict[str, str]]:
    """Return the JSON of an error."""
    usual = TEXTS.get(status, TEXTS[500])
    return {"error": {"code": code or usual[0], "message": message or usual[1], "id": request_id}}
