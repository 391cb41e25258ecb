"""Rules that answers keep to: what is made of them where a plan is signed and where an answer is."""

import sys

import pytest
import yaml

from accounting.plan import PlanError, TaskNoise, load_plan
from accounting.privacy.token_ensemble import TokenEnsemble
from service.engines.grammar_check import grammar_problem
from service.pipeline.mechanisms.token_ensemble import TokenEnsembleAdapter, Written
from service.plans.signing import check_engine
from service.records.records import Records
from tests.service.conftest import TEXT_PLAN

MECHANISM = "type: token_ensemble, tokens: 30"
SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}


def plan(**rules):
    written = yaml.safe_load(TEXT_PLAN.format(epsilon=1, answers=10, mechanism=MECHANISM))
    written["tasks"]["story"]["mechanism"] |= rules
    return load_plan(yaml.safe_dump(written, sort_keys=False))


def writing(**rules):
    task = plan(**rules).tasks["story"]
    noise = TaskNoise(mechanism=TokenEnsemble(0.2, 30), sampling_probability=0.1)
    return TokenEnsembleAdapter(task, noise).writing


def test_rules_reach_the_engine():
    rules = writing(banned=["Straße"], json_schema=SCHEMA)
    assert (rules.banned, rules.regex) == (("strasse",), "")
    assert list(yaml.safe_load(rules.json_schema)["properties"]) == ["b", "a"]
    assert writing(regex="yes|no").regex == "yes|no"


@pytest.mark.parametrize(
    ("rules", "text"),
    [({}, "No way"), ({"banned": ["never"]}, "No way"), ({"banned": ["no"]}, ""), ({"regex": "yes"}, "")],
)
def test_where_nothing_was_written_a_rule_may_forbid_the_zero_shot_answer(rules, text):
    answer = Written(writing(**rules), "No way").answer("")
    assert (answer["text"], answer["fallback"]) == (text, True)


def test_a_plan_whose_grammar_cannot_be_kept_to_is_not_signed(records: Records):
    pytest.importorskip("xgrammar")
    check_engine(records, plan(regex="(yes|no), [0-9]{2}"))
    check_engine(records, plan(json_schema=SCHEMA))
    for field, wrong in (("regex", "(yes"), ("json_schema", {"type": "text"})):
        with pytest.raises(PlanError, match=rf"tasks\.story\.mechanism\.{field}: "):
            check_engine(records, plan(**{field: wrong}))


def test_a_grammar_is_not_judged_where_nothing_can_read_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "xgrammar", None)
    assert grammar_problem("regex", "(yes") == ""
