"""What remote servers' refusals mean: bodies in each server's own shape, none of whose text is passed on."""

import json
from typing import Any

import pytest

from service.engines.configs import OpenAiCompatibleConfig
from service.engines.errors import EngineUnavailableError, UnanswerableQueryError, UnusableReplyError
from service.engines.remote.engine import OpenAiCompatibleEngine
from service.engines.remote.refusals import Reason, Refusal, read_refusal
from service.engines.task import Prompt, TaskSpec
from tests.service.engines.chat_server import Asked, ChatServer, response

CANARY = "canary-0b7f1d: is too long for the maximum context length, model not found"
SENT = {
    "model": "m",
    "messages": [{"role": "user", "content": CANARY}],
    "temperature": 0.0,
    "max_tokens": 50,
    "seed": 7,
    "response_format": {"type": "json_schema"},
    "user": "u",
}


def openai(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None} | more}


def vllm(message: str, kind: str = "BadRequestError", code: int = 400) -> dict[str, Any]:
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code}


LENGTH = [
    (400, openai("This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
                 param="messages", code="context_length_exceeded")),
    (400, openai("Invalid 'messages[0].content': string too long.", param="messages[0].content",
                 code="string_above_max_length")),
    (400, vllm("This model's maximum context length is 2048 tokens. However, you requested 2050 tokens (2000 in the "
               "messages, 50 in the completion). Please reduce the length of the messages or completion.")),
    (400, {"error": vllm("The decoder prompt (length 5000) is longer than the maximum model length of 2048.")}),
    (400, {"error": {"code": 400, "message": "request (5000 tokens) exceeds the available context size (2048 tokens), "
                     "try increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 5000}}),
    (500, {"error": {"code": 500, "message": "the request exceeds the available context size", "type": "server"}}),
    (400, {"error": "prompt too long; exceeded max context length by 12 tokens"}),
    (400, openai("litellm.BadRequestError: litellm.ContextWindowExceededError: ...", type=None, code="400")),
    (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` "
           "tokens and 50 `max_new_tokens`", "error_type": "validation"}),
    (422, {"error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000",
           "error_type": "validation"}),
    (400, {"object": "error", "message": "The input (5000 tokens) is longer than the model's context length (2048 "
           "tokens).", "code": 400}),
    (400, [{"error": {"code": 400, "message": "The input token count (5000) exceeds the maximum number of tokens "
            "allowed (2048).", "status": "INVALID_ARGUMENT"}}]),
    (400, openai("prompt is too long: 210000 tokens > 200000 maximum")),
    (400, openai("Range of input length should be [1, 30720]", code="invalid_parameter_error")),
    (400, {"message": "Malformed input request: expected maxLength: 2048, actual: 9000, please reformat your input"}),
    (400, {"error": {"message": "Input token length too long"}}),
    (413, "Request Entity Too Large"),
]  # fmt: skip
MODEL = [
    (404, openai("The model `m` does not exist or you do not have access to it.", code="model_not_found")),
    (404, {"error": {"code": "DeploymentNotFound", "message": "The API deployment for this resource does not exist."}}),
    (404, vllm("The model `m` does not exist.", "NotFoundError", 404)),
    (404, openai('model "m" not found, try pulling it first', type="api_error")),
    (404, {"error": "model 'm' not found"}),
    (400, openai("/chat/completions: Invalid model name passed in model=m. Call `/v1/models` to view models.",
                 param="None", code="400")),
    (400, openai("m is not a valid model ID", code=400)),
    (400, openai('"m" does not support chat')),
    (400, openai("The model `m` has been decommissioned and is no longer supported.", code="model_decommissioned")),
    (400, openai("Model Not Exist")),
    (404, "404 page not found"),
]  # fmt: skip
PARAMETER = [
    (400, "max_tokens", openai("Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                               "'max_completion_tokens' instead.", param="max_tokens", code="unsupported_parameter")),
    (400, "temperature", openai("Unsupported value: 'temperature' does not support 0.0 with this model. Only the "
                                "default (1) value is supported.", param="temperature", code="unsupported_value")),
    (400, "seed", openai("Unrecognized request argument supplied: seed")),
    (400, "user", openai("Additional properties are not allowed ('user' was unexpected)")),
    (400, "max_tokens", openai("max_tokens is too large: 5000. This model supports at most 4096 completion tokens.")),
    (400, "response_format", {"error": {"code": "BadRequest", "message": "response_format value as json_schema is "
                                        "enabled only for api versions 2024-08-01-preview and later"}}),
    (400, "seed", vllm("[{'type': 'extra_forbidden', 'loc': ('body', 'seed'), 'msg': 'Extra inputs are not permitted',"
                       f" 'input': {CANARY!r}}}]")),
    (400, "max_tokens", vllm("'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context "
                             "length is 2048 tokens and your request has 30 input tokens (5000 > 2048 - 30).")),
    (422, "temperature", {"detail": [{"loc": ["body", "temperature"], "msg": "Input should be a valid number",
                                      "type": "float_type", "input": CANARY}]}),
    (422, "seed", {"object": "error", "message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"],
                                                  "msg": "Extra inputs are not permitted", "input": CANARY}]}}),
    (400, "max_tokens", openai("json: cannot unmarshal string into Go struct field ChatCompletionRequest.max_tokens of "
                               "type int")),
    (500, "response_format", {"error": {"code": 500, "message": "Unsupported param: response_format"}}),
    (400, "seed", openai("litellm.UnsupportedParamsError: bedrock does not support parameters: ['seed'], for model=m",
                         code="400")),
    (422, "temperature", {"error": "Input validation error: `temperature` must be strictly positive",
                          "error_type": "validation"}),
    (422, "response_format", "Failed to deserialize the JSON body into the target type: response_format: unknown "
                             "variant `json_schema`, expected `json` or `regex` at line 1 column 212"),
    (400, "seed", [{"error": {"code": 400, "message": 'Invalid JSON payload received. Unknown name "seed": Cannot find '
                              "field.", "status": "INVALID_ARGUMENT"}}]),
    (400, "", openai("Unknown parameter: 'prompt_cache'.", code="unknown_parameter")),
    (400, "", openai("API version not supported")),
    (400, "max_tokens", openai("`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` "
                               "is less than the `context_window` for this model")),
    (400, "user", openai("Invalid 'user': string too long. Expected a string with maximum length 64.", param="user",
                         code="string_above_max_length")),
    (400, "response_format", {"error": {"code": 400, "message": "Failed to initialize samplers: failed to parse "
                                        "grammar", "type": "invalid_request_error"}}),
    (500, "response_format", {"error": {"code": 500, "message": "failed to parse grammar", "type": "server_error"}}),
    (400, "response_format", vllm("xgrammar does not support the JSON schema feature minLength")),
    (404, "response_format", openai("No endpoints found that can handle the requested parameters: response_format",
                                    code=404)),
]  # fmt: skip
CONTENT = [
    (400, {"error": {"message": "The response was filtered due to the prompt triggering Azure OpenAI's content "
                     "management policy.", "param": "prompt", "code": "content_filter", "status": 400}}),
    (400, openai("litellm.ContentPolicyViolationError: ...", code="400")),
    (400, openai("Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
                 code="invalid_prompt")),
    (400, openai("Content Exists Risk", code="invalid_request_error")),
    (400, openai("Input data may contain inappropriate content.", code="data_inspection_failed")),
    (403, {"error": {"message": "m requires moderation. Your input was flagged", "code": 403}}),
]  # fmt: skip
ACCOUNT = [
    (429, openai("You exceeded your current quota, please check your plan and billing details.",
                 type="insufficient_quota", code="insufficient_quota")),
    (400, [{"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.",
                      "status": "INVALID_ARGUMENT"}}]),
    (400, openai("Your credit balance is too low to access the API.")),
    (400, {"error": {"message": "User location is not supported for the API use.", "status": "FAILED_PRECONDITION"}}),
]  # fmt: skip
UNKNOWN = [
    (400, ""), (400, "Bad Request"), (422, {"detail": f"no: {CANARY}"}), (400, {"error": None}), (404, ""),
    (429, openai("Rate limit reached for m on requests per min", code="rate_limit_exceeded")),
    (500, "<html>Internal Server Error: unexpected value</html>"), (500, openai("model runner has stopped: seed 7")),
]  # fmt: skip
CASES = [
    *((status, body, Refusal(Reason.LENGTH)) for status, body in LENGTH),
    *((status, body, Refusal(Reason.MODEL)) for status, body in MODEL),
    *((status, body, Refusal(Reason.PARAMETER, name)) for status, name, body in PARAMETER),
    *((status, body, Refusal(Reason.CONTENT)) for status, body in CONTENT),
    *((status, body, Refusal(Reason.ACCOUNT)) for status, body in ACCOUNT),
    *((status, body, None) for status, body in UNKNOWN),
]


def encoded(body: object) -> str:
    return body if isinstance(body, str) else json.dumps(body)


@pytest.mark.parametrize(("status", "body", "meaning"), CASES)
def test_each_servers_refusal_is_understood(status: int, body: object, meaning: Refusal | None) -> None:
    assert read_refusal(status, encoded(body).encode(), SENT) == meaning


@pytest.mark.parametrize("status", [401, 403, 408, 409, 429, 502, 503])
def test_other_statuses_speak_for_themselves(status: int) -> None:
    assert read_refusal(status, encoded(LENGTH[0][1]).encode(), SENT) is None


def test_a_body_of_any_form_is_read() -> None:
    for body in (b"\xff\xfe", b"[" * 100_000, b'{"error":' * 200 + b"1" + b"}" * 200, b"null", b"7", b'"seed"'):
        assert read_refusal(400, body, SENT) in (None, Refusal(Reason.PARAMETER, "seed"))


TASK = TaskSpec("shop.team@1", ("Billing", "Delivery"), Prompt("", "{text}: {label}", "{text}:"), knowledge_base="shop")


@pytest.mark.parametrize(
    ("status", "body", "kind", "says"),
    [
        (*LENGTH[0], UnanswerableQueryError, "too long: ask with a shorter text"),
        (*CONTENT[0], UnanswerableQueryError, "ask another question"),
        (*MODEL[0], UnusableReplyError, "an operator must correct model"),
        (
            PARAMETER[0][0],
            PARAMETER[0][2],
            UnusableReplyError,
            "the parameter max_tokens .*max_completion_tokens: 1000",
        ),
        (PARAMETER[2][0], PARAMETER[2][2], UnusableReplyError, r"operator must set extra_body: {seed: null}"),
        (200, {"error": PARAMETER[1][2]["error"] | {"code": 400}}, UnusableReplyError, "temperature"),
        (400, "You sent PROMPT", UnanswerableQueryError, "for a reason that it does not give"),
        (503, "busy", EngineUnavailableError, "status 503"),
        (400, openai("API version not supported"), UnusableReplyError, "an operator must correct extra_body, base_url"),
        (*ACCOUNT[0], UnusableReplyError, "an operator must check DPICL_REMOTE_API_KEY, and the account"),
    ],
)
async def test_who_can_change_it_is_named_and_nothing_is_quoted(status, body, kind, says, caplog, capfd) -> None:
    asked = []

    async def behave(request: Asked) -> bytes:
        asked.append(request)
        return response(status, encoded(body).replace("PROMPT", request.prompt))

    async with ChatServer(behave) as server:
        config = OpenAiCompatibleConfig(
            name="openai_compatible", base_url=server.url, model="m", isolation="best_effort", max_attempts=2,
            constrain_labels=True, extra_body={"seed": 7},
        )  # fmt: skip
        engine = OpenAiCompatibleEngine(config)
        try:
            with pytest.raises(kind, match=says) as refused:
                await engine.zero_shot(TASK, {"text": CANARY})
        finally:
            await engine._endpoint._client.aclose()
    assert len(asked) == (2 if status == 503 else 1)
    for shown in (str(refused.value), "".join(capfd.readouterr()), caplog.text):
        assert CANARY[:13] not in shown
