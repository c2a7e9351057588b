#pragma once

#include <functional>
#include <memory>

#include "gateway/serving/answer.h"
#include "gateway/serving/request_maker.h"
#include "gateway/serving/workers.h"

namespace hadal::serving {

// Goes on with an answer after each round that called tools of the server, on one of `workers`
// (not null when the request has such tools). Empty when it has none. `maker` and `workers` outlive
// the answer.
std::function<void(std::shared_ptr<Answer>)> make_tool_runner(const MadeRequest& made,
                                                              RequestMaker& maker,
                                                              Workers* workers);

}  // namespace hadal::serving
