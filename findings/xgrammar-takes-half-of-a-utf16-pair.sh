#!/usr/bin/env bash
# xgrammar 0.2.8: regular expressions and JSON schemas take the code points U+D800 to U+DFFF, which are halves of pairs in UTF-16 and
# not characters. All other bytes that are not UTF-8 are refused. So a language model with tokens of single bytes can write one under
# `maxLength: 1`, and what leaves is not UTF-8: a decoder that replaces errors makes three characters of it, and the text breaks the
# schema that the grammar kept to. Strings without a greatest length take them as JSON's escapes, too: Python's json reads `"\ud800"` as
# a text that it cannot encode, and orjson 3.11.4 refuses it. Of 2,048 halves, xgrammar took 2,048 as bytes and as escapes.
# About 2.8 GB to fetch (torch).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip install -qq --no-compile --no-cache-dir --disable-pip-version-check xgrammar==0.2.8 torch==2.13.0 \
    transformers==5.19.0 numpy==2.3.5 orjson==3.11.4
CUDA_VISIBLE_DEVICES='' "$python" - << 'END'
import json

import orjson
from xgrammar import GrammarCompiler, GrammarMatcher, TokenizerInfo, VocabType

END = 256
tokens = TokenizerInfo([bytes([byte]) for byte in range(END)] + [b"</s>"], VocabType.RAW, stop_token_ids=[END])
compiler = GrammarCompiler(tokens)
string = compiler.compile_json_schema(json.dumps({"type": "string"}))
one_long = compiler.compile_json_schema(json.dumps({"type": "string", "maxLength": 1}))
any_one = compiler.compile_regex(".")


def takes(grammar, said):
    matcher = GrammarMatcher(grammar)
    return all(matcher.accept_token(byte) for byte in said) and matcher.accept_token(END)


for half in range(0xD800, 0xE000):
    said = chr(half).encode("utf-8", "surrogatepass")
    assert takes(any_one, said), f"{half:x} as bytes, in a regular expression"
    assert takes(one_long, b'"' + said + b'"'), f"{half:x} as bytes, in a string of JSON"
    assert len(said.decode("utf-8", "replace")) == 3
    escaped = b'"\\u%x"' % half
    assert takes(string, escaped), f"{half:x} as an escape"
    try:
        json.loads(escaped).encode()
    except UnicodeEncodeError:
        pass
    else:
        raise AssertionError("json reads a text")
    try:
        orjson.loads(escaped)
    except orjson.JSONDecodeError:
        pass
    else:
        raise AssertionError("orjson reads it")
print("took all 2,048 halves of pairs as one character, as bytes and as escapes")
refused = [b"\xff", b"\x80", b"\xc0\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80"]
assert not any(takes(any_one, said) for said in refused)
assert takes(any_one, "é".encode()) and not takes(any_one, "é".encode()[:1])
print("refused", len(refused), "other sequences that are not UTF-8")
END
