"""``dpicl plan rehearse``: how often a plan's answers would be right, privately and at a small price."""

from __future__ import annotations

import asyncio

from accounting.plan import load_plan
from service.cli.gathering import gathered
from service.cli.output import Json, PlanFile, SignedBy, Yes, actor, agreed, print_json, records, say
from service.cli.trying import EngineConfigFile, engine_of, stages_of
from service.commands import rehearsals
from service.commands.rehearsals import NewRehearsal, Offer
from service.engines.configs import EngineConfig
from service.plans.rehearsing import Rehearsed
from service.plans.signing import prepare
from service.records.records import Records
from service.records.roles import Actor


@gathered
def rehearse(
    file: PlanFile,
    *,
    wanted: NewRehearsal,
    engine_config: EngineConfigFile = None,
    yes: Yes = False,
    signed_by: SignedBy = None,
    json: Json = False,
) -> None:
    """Find out privately how often a plan's answers would be right, before it is signed. This spends budget for good.

    Some units ask, the others answer with the plan's noise, and only noisy counts of right and wrong answers leave.
    Run it where the service runs. It ends at a time fixed before anything private is read.
    """
    me, opened, plan = actor(signed_by), records(), load_plan(file.read_text())
    offer = rehearsals.offer(me, prepare(opened, plan), wanted)
    budget, (described,) = offer.calibrated.plan.budget, offer.preview.tasks.values()
    if not json:
        for said in filter(None, [described.summary, described.warning]):
            say(said)
    agreed(f"Take ε = {budget.epsilon:g}, δ = {budget.delta:g} from {plan.knowledge_base} for good?", yes=yes)
    rehearsed = asyncio.run(_run(me, opened, offer, engine_of(engine_config)))
    accuracy, zero_shot = rehearsed.counts.accuracy, rehearsed.counts.zero_shot_accuracy
    if json:
        between = {"accuracy": accuracy, "zero_shot_accuracy": zero_shot}
        print_json({"task": rehearsed.task, "epsilon": budget.epsilon, "delta": budget.delta, **between})
        return
    say(f"With the plan: {_said(accuracy)} of answers right, 95 % sure.")
    say(f"Zero-shot, free: {_said(zero_shot)}.")


async def _run(me: Actor, opened: Records, offer: Offer, config: EngineConfig) -> Rehearsed:
    with stages_of(config) as stages:
        return await rehearsals.run(me, opened, offer, stages)


def _said(between: tuple[float, float]) -> str:
    low, high = between
    return f"between {100 * low:.0f} and {100 * high:.0f} %"
