#pragma once

#include <array>

#include "base/metrics/metrics.h"
#include "base/types/request.h"

namespace hadal::step {

// What the loop counts, under vLLM's names where the meaning is the same.
struct EngineMetrics {
  explicit EngineMetrics(metrics::Registry& registry);

  metrics::Gauge &running, &waiting, &paused;
  metrics::Gauge &cache_usage, &blocks_free, &blocks_cached, &blocks_active;
  metrics::Counter &prefix_queries, &prefix_hits, &prompt_tokens, &generation_tokens, &preemptions;
  metrics::Counter &replayed_tokens, &evicted_blocks, &stored_blocks, &snapshots;
  metrics::Counter &steps, &failed_steps;
  std::array<metrics::Counter*, 7> finished;      // by types::FinishReason
  std::array<metrics::Counter*, 6> cache_misses;  // by types::CacheMiss
  metrics::Histogram &time_to_first_token, &inter_token, &time_per_output_token, &end_to_end;
  metrics::Histogram &queue_time, &prefill_time, &decode_time, &inference_time;
  metrics::Histogram &prompt_length, &generation_length, &max_tokens, &iteration_tokens;
  metrics::Histogram &step_seconds, &step_outside_seconds;
};

}  // namespace hadal::step
