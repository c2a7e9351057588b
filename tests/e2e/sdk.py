#!/usr/bin/env python3
"""The official openai and anthropic SDKs against a running server: sdk.py BASE_URL [--key KEY]. Start it with
    hadal serve --backend script --script tests/e2e/sdk_script.jsonl
Every call must parse; streams must add up to the whole answer. Exit 1 with the first failure."""
import argparse
import asyncio
import json

import anthropic
import openai

TEXT, REASONING = "The tide is high at noon.", "Look at the table."
TOOL = {"type": "function", "function": {"name": "get_tide", "parameters": {"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]}}}


def chat(client, model):
    whole = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "tide?"}])
    assert whole.choices[0].message.content == TEXT and whole.choices[0].finish_reason == "stop", whole
    assert whole.choices[0].message.reasoning_content == REASONING
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    content, reasoning, usage = "", "", None
    for chunk in client.chat.completions.create(model=model, stream=True, stream_options={"include_usage": True}, messages=[{"role": "user", "content": "tide?"}]):
        usage = chunk.usage or usage
        if chunk.choices:
            content += chunk.choices[0].delta.content or ""
            reasoning += getattr(chunk.choices[0].delta, "reasoning_content", None) or ""
    assert (content, reasoning) == (TEXT, REASONING) and usage.completion_tokens == whole.usage.completion_tokens
    called = client.chat.completions.create(model=model, tools=[TOOL], messages=[{"role": "user", "content": "use the tool"}])
    call = called.choices[0].message.tool_calls[0]
    assert called.choices[0].finish_reason == "tool_calls" and (call.function.name, call.function.arguments) == ("get_tide", '{"day": "Monday"}'), called
    many = client.chat.completions.create(model=model, n=3, messages=[{"role": "user", "content": "tide?"}])
    assert [choice.message.content for choice in many.choices] == [TEXT] * 3
    try:
        client.chat.completions.create(model=model, messages=[{"role": "pirate", "content": "x"}])
        raise AssertionError("a wrong role was taken")
    except openai.BadRequestError as error:
        assert "messages[0].role" in str(error), error
    assert client.completions.create(model=model, prompt="x", max_tokens=3).usage.completion_tokens == 3
    assert model in [entry.id for entry in client.models.list().data]


def responses(client, model):
    whole = client.responses.create(model=model, input="tide?")
    assert whole.output_text == TEXT and whole.status == "completed"
    with client.responses.stream(model=model, input="tide?") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert final.output_text == TEXT and kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds


def stored_responses(client, model):
    first = client.responses.create(model=model, input="tide?")
    assert client.responses.retrieve(first.id).output_text == TEXT
    second = client.responses.create(model=model, input="tide again?", previous_response_id=first.id)
    assert second.previous_response_id == first.id and second.usage.input_tokens > first.usage.input_tokens
    items = client.responses.input_items.list(second.id)
    assert [item.type for item in items.data] == ["message", "message", "reasoning", "message"], items
    assert [items.data[i].content[0].text for i in (0, 1, 3)] == ["tide again?", TEXT, "tide?"], items
    waiting = client.responses.create(model=model, input="tide?", background=True)
    while waiting.status in ("queued", "in_progress"):
        waiting = client.responses.retrieve(waiting.id)
    assert waiting.status == "completed" and client.responses.cancel(waiting.id).output_text == TEXT
    sent = list(client.responses.create(model=model, input="tide?", background=True, stream=True))
    made = sent[-1].response
    assert made.output_text == TEXT and [event.sequence_number for event in sent] == list(range(len(sent)))
    assert list(client.responses.retrieve(made.id, stream=True)) == sent
    assert list(client.responses.retrieve(made.id, stream=True, starting_after=3)) == sent[4:]
    with client.responses.stream(response_id=made.id, starting_after=1) as stream:  # the SDK's own way to come back
        assert stream.get_final_response().output_text == TEXT
    try:
        client.responses.retrieve(second.id, stream=True)
        raise AssertionError("a response that was not streamed was streamed")
    except openai.BadRequestError as error:
        assert error.param == "stream", error
    client.responses.delete(first.id)
    for gone in (lambda: client.responses.retrieve(first.id), lambda: client.responses.delete(first.id)):
        try:
            gone()
            raise AssertionError("a deleted response is there")
        except openai.NotFoundError:
            pass
    try:
        client.responses.create(model=model, input="x", previous_response_id=first.id)
        raise AssertionError("an unknown previous response was taken")
    except openai.BadRequestError as error:
        assert error.code == "previous_response_not_found", error
    talk = client.conversations.create(metadata={"topic": "tide"}, items=[{"type": "message", "role": "user", "content": "hello"}])
    client.responses.create(model=model, input="tide?", conversation=talk.id)
    kinds = [(item.type, getattr(item, "role", None)) for item in client.conversations.items.list(talk.id, order="asc")]
    assert kinds == [("message", "user"), ("message", "user"), ("reasoning", None), ("message", "assistant")], kinds
    assert client.conversations.retrieve(talk.id).metadata == {"topic": "tide"} and client.conversations.delete(talk.id).deleted


def batches(client, model):
    lines = [{"custom_id": f"{i}", "method": "POST", "url": "/v1/chat/completions", "body": {"model": model, "messages": [{"role": "user", "content": "tide?"}]}} for i in range(20)]
    content = "\n".join(json.dumps(line) for line in lines).encode()
    file = client.files.create(file=("lines.jsonl", content), purpose="batch")
    assert file.bytes == len(content) and client.files.content(file.id).read() == content
    assert file.id in [entry.id for entry in client.files.list(purpose="batch")]
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"a": "b"})
    while batch.status not in ("completed", "failed"):
        batch = client.batches.retrieve(batch.id)
    assert batch.status == "completed" and (batch.request_counts.completed, batch.request_counts.failed) == (20, 0), batch
    out = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
    assert [line["custom_id"] for line in out] == [f"{i}" for i in range(20)]
    assert all(line["response"]["body"]["choices"][0]["message"]["content"] == TEXT for line in out)
    assert batch.id in [entry.id for entry in client.batches.list(limit=5)]
    assert client.files.delete(file.id).deleted


def messages(client, model):
    whole = client.messages.create(model=model, max_tokens=500, messages=[{"role": "user", "content": "tide?"}])
    assert [block.type for block in whole.content] == ["thinking", "text"] and whole.content[1].text == TEXT and whole.stop_reason == "end_turn"
    with client.messages.stream(model=model, max_tokens=500, messages=[{"role": "user", "content": "tide?"}]) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == TEXT and final.usage.output_tokens == whole.usage.output_tokens
    tool = {"name": "get_tide", "input_schema": TOOL["function"]["parameters"]}
    called = client.messages.create(model=model, max_tokens=500, tools=[tool], messages=[{"role": "user", "content": "use the tool"}])
    assert called.stop_reason == "tool_use" and called.content[-1].input == {"day": "Monday"}, called
    assert client.messages.count_tokens(model=model, messages=[{"role": "user", "content": "tide?"}]).input_tokens > 3


async def many_at_once(base, key, model):
    client = openai.AsyncOpenAI(base_url=base + "/v1", api_key=key)
    answers = await asyncio.gather(*(client.chat.completions.create(model=model, messages=[{"role": "user", "content": f"tide? {i}"}]) for i in range(50)))
    assert all(answer.choices[0].message.content == TEXT for answer in answers)
    cut = await client.chat.completions.create(model=model, stream=True, messages=[{"role": "user", "content": "tide?"}])
    async for _ in cut:
        break
    await cut.close()


def main():
    args = argparse.ArgumentParser()
    args.add_argument("base")
    args.add_argument("--key", default="x")
    args.add_argument("--model", default="deepseek-flash")
    a = args.parse_args()
    passed = 0
    client = openai.OpenAI(base_url=a.base + "/v1", api_key=a.key, max_retries=0)
    for check in (chat, responses, stored_responses, batches):
        check(client, a.model)
        passed += 1
    messages(anthropic.Anthropic(base_url=a.base, api_key=a.key, max_retries=0), "claude-sonnet-4-5")
    asyncio.run(many_at_once(a.base, a.key, a.model))
    print(f"{passed + 2} passed, 0 failed")


if __name__ == "__main__":
    main()
