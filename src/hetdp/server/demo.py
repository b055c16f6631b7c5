"""A sample study, so that there is something to see: 400 people have answered, five invitations are left."""

from __future__ import annotations

import random
import time
from typing import Any

from . import answers, studies

QUESTION = "How many hours did you sleep last night?"
TIERS = (
    ("Strict", 0.05, "Almost nothing about your answer can be learnt.", 180),
    ("Standard", 0.3, "Little can be learnt. A good choice for most people.", 140),
    ("Open", 2.0, "You do not mind if more could be learnt.", 80),
)


def new_study(now: int, question: str = QUESTION) -> studies.NewStudy:
    """Return the sample study."""
    return studies.NewStudy(
        question=question,
        unit="hours",
        bounds=[0.0, 14.0],
        tiers=[studies.Tier(name=name, epsilon=level, sentence=said) for name, level, said, _ in TIERS],
        opens=now - 3600,
        waves=[studies.Wave(closes=now + 14 * 86_400)],
        fewest=100,
    )


def sample_rows() -> bytes:
    """Return made-up answers as CSV."""
    draw = random.Random(7)  # noqa: S311  a sample, not a secret
    people = [(draw.gauss(7.1, 1.3), name) for name, _, _, count in TIERS for _ in range(count)]
    return "\n".join(["value,tier", *(f"{value:.2f},{name}" for value, name in people)]).encode()


def sample(app: Any, address: str) -> list[str]:
    """Fill an empty server and return the lines to print: a published study, an open one, and links to answer it."""
    state, now = app.state, int(time.time())
    for question in ("How many hours do you sleep on a usual Sunday?", QUESTION):
        study = state.store.write(studies.create, new_study(now, question))
        people = answers.read_rows(sample_rows(), study, state.vault)
        state.store.write(answers.add_rows, study.id, f"sample {study.id}", people)
        if question != QUESTION:
            state.publisher.publish(study.id, 0)
            published = study.id
    tokens = state.store.write(studies.invite, study.id, 5)
    return [
        f"result       {address}/results/{published}",
        f"explore      {address}/explore",
        f"dashboard    {address}/curator/studies/{study.id}",
        *(f"invitation   {address}/join#{token}" for token in tokens),
    ]
