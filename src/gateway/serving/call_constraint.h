#pragma once

#include "base/types/request.h"
#include "gateway/recipe/conversation.h"
#include "gateway/recipe/options.h"

namespace hadal::serving {

// The form of the output of a request with visible tools, if a tool that may be called is strict or
// has a grammar for its input, or the text must have a format and calls are the model's choice;
// else kNone. The call markup then keeps to what was declared: names, parameters of strict tools,
// inputs with a grammar; other tools' parameters are free within it. Includes what a required or
// named choice asks for (call_path.h is for requests without such tools). With a format the output
// is either a text of it or calls, and nothing else.
types::Constraint make_call_constraint(const recipe::CodecRequest& request,
                                       const recipe::CodecOptions& options);

}  // namespace hadal::serving
