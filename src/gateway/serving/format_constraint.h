#pragma once

#include "base/types/request.h"
#include "gateway/recipe/conversation.h"

namespace hadal::serving {

// The form of the answer's text that a request without visible tools asks for (`response_format`,
// `text.format`, `output_config.format`); kNone if it asks for none. It holds behind the think
// section, and an assistant message that is to be continued is its beginning.
types::Constraint make_format_constraint(const recipe::CodecRequest& request);

}  // namespace hadal::serving
