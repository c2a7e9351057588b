"""Hooks of schemathesis.sh: what a JSON Schema cannot say about a request. Loaded by SCHEMATHESIS_HOOKS."""
import os
import re

import schemathesis
from schemathesis.openapi.checks import RejectedPositiveData

# A request that its schema allows may be refused with 400 for these reasons, each by what the error names and says; for no other.
BEYOND_A_SCHEMA = [
    (r"after", r"there is no (file|batch|item)|has no item"),  # a cursor that is no id of the list
    (r"tools\[\d+\]\.function\.name", r"Tool names must be unique\."),
    (r"input_file_id", r"there is no file|was not uploaded with purpose batch"),
    (r"response_id", r"only responses that were created with background: true can be cancelled"),
    (r"stream", r"only a response that was created with stream: true can be streamed"),
    (r"starting_after", r"the last event of this response has the number"),
    (r"store", r"a background response must be stored"),
    (r"previous_response_id", r"Previous response with id '.*' not found\.|previous_response_id and conversation exclude each other"),
    (r"batch_id", r"the batch is \w+ and cannot be cancelled"),
]


@schemathesis.hook
def filter_failure(context, failure, case, response):
    if not isinstance(failure, RejectedPositiveData) or response.status_code != 400:
        return True
    error = response.json().get("error", {})
    return not any(re.fullmatch(param, error.get("param") or "") and re.search(says, error.get("message", ""), re.DOTALL) for param, says in BEYOND_A_SCHEMA)


@schemathesis.hook
def map_body(context, body):
    """A batch needs a file that is there."""
    if context.operation.label == "POST /v1/batches" and isinstance(body, dict) and isinstance(body.get("input_file_id"), str):
        return {**body, "input_file_id": os.environ["HADAL_BATCH_FILE"]}
    return body
