#include "gateway/serving/tool_runner.h"

#include <utility>
#include <vector>

namespace hadal::serving {

std::function<void(std::shared_ptr<Answer>)> make_tool_runner(const MadeRequest& made,
                                                              RequestMaker& maker,
                                                              Workers* workers) {
  if (made.rounds == nullptr) return nullptr;
  return [&maker, workers, rounds = made.rounds,
          tenant = made.requests.front().tenant](std::shared_ptr<Answer> answer) {
    workers->run([&maker, rounds, tenant, answer = std::move(answer)] {
      uint32_t n_written = 0;
      const recipe::ResponseStream::Round round = answer->waiting_round(n_written);
      const std::vector<recipe::ServerToolResult> results = rounds->run(round);
      answer->show(results);
      if (round.calls_client) return answer->end_rounds(false);
      auto next = rounds->next(round, results, n_written);
      if (!next) return answer->fail(next.error());
      if (!*next) return answer->end_rounds(true);
      (*next)->id = maker.new_id();
      (*next)->tenant = tenant;
      answer->go_on(*std::move(*next));
    });
  };
}

}  // namespace hadal::serving
