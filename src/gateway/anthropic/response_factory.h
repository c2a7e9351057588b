#pragma once

#include <memory>

#include "gateway/recipe/response_stream.h"

namespace hadal::anthropic {

// The writer of a request's dialect. It stands here because this is the last of the dialects'
// folders: it sees them all. `vocabulary` must outlive the writer.
std::unique_ptr<recipe::ResponseWriter> make_response_writer(const recipe::ParsePlan& parse,
                                                             const recipe::ResponsePlan& plan,
                                                             const recipe::Vocabulary& vocabulary,
                                                             recipe::ResponseIdentity identity);

// The answer to a request that was read: the usual way from a CodecRequest to its stream.
// `prompt_ids` may be empty unless the request asks for them.
std::unique_ptr<recipe::ResponseStream> make_response_stream(
    recipe::ParsePlan parse, recipe::ResponsePlan plan, recipe::Extension extension,
    const recipe::Vocabulary& vocabulary, recipe::ResponseIdentity identity,
    std::vector<types::TokenId> prompt_ids = {});

}  // namespace hadal::anthropic
