#pragma once

#include "base/types/request.h"
#include "gateway/recipe/conversation.h"
#include "gateway/recipe/options.h"

namespace hadal::serving {

// The form of a request's calls, if a tool that may be called is strict or has a grammar for its
// input; else kNone. The call markup then keeps to what was declared: names, parameters of strict
// tools, inputs with a grammar; other tools' parameters are free within it. Includes what a
// required or named choice asks for (call_path.h is for requests without such tools).
types::Constraint make_call_constraint(const recipe::CodecRequest& request,
                                       const recipe::CodecOptions& options);

}  // namespace hadal::serving
