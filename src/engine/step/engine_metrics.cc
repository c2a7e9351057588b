#include "engine/step/engine_metrics.h"

#include <string>

namespace hadal::step {
namespace {

constexpr std::array<double, 16> kStepBounds{1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3,
                                             5e-3, 1e-2, 2e-2, 5e-2, 0.1,  0.2,  0.5,  2.0};

metrics::Histogram& latency(metrics::Registry& r, std::string_view name, std::string_view help) {
  return r.histogram(name, help, metrics::latency_seconds_bounds());
}
metrics::Histogram& tokens(metrics::Registry& r, std::string_view name, std::string_view help) {
  return r.histogram(name, help, metrics::token_count_bounds());
}

}  // namespace

EngineMetrics::EngineMetrics(metrics::Registry& r)
    : running(r.gauge("vllm:num_requests_running", "Requests with rows in the batch.")),
      waiting(r.gauge("vllm:num_requests_waiting", "Requests that wait for a place.")),
      paused(r.gauge("hadal_requests_paused", "Running requests whose reader is slow.")),
      cache_usage(r.gauge("vllm:kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.")),
      blocks_free(r.gauge("hadal_kv_blocks", "KV blocks by tier and state.",
                          {{"tier", "device"}, {"state", "free"}})),
      blocks_cached(r.gauge("hadal_kv_blocks", "KV blocks by tier and state.",
                            {{"tier", "device"}, {"state", "cached"}})),
      blocks_active(r.gauge("hadal_kv_blocks", "KV blocks by tier and state.",
                            {{"tier", "device"}, {"state", "active"}})),
      prefix_queries(r.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up.")),
      prefix_hits(r.counter("vllm:prefix_cache_hits_total", "Prompt tokens found.")),
      prompt_tokens(r.counter("vllm:prompt_tokens_total", "Prompt tokens of admitted requests.")),
      generation_tokens(r.counter("vllm:generation_tokens_total", "Tokens generated.")),
      preemptions(r.counter("vllm:num_preemptions_total", "Sequences put back to wait.")),
      replayed_tokens(
          r.counter("hadal_replayed_tokens_total", "Cached tokens run again to rebuild windows.")),
      evicted_blocks(r.counter("hadal_kv_evicted_blocks_total", "Cached blocks given up.",
                               {{"tier", "device"}})),
      stored_blocks(r.counter("hadal_kv_stored_blocks_total", "Blocks sealed under a name.",
                              {{"tier", "device"}})),
      snapshots(r.counter("hadal_window_snapshots_total", "Window states kept.")),
      steps(r.counter("hadal_steps_total", "Steps run.")),
      failed_steps(r.counter("hadal_failed_steps_total", "Steps that the device failed.")),
      time_to_first_token(latency(r, "vllm:time_to_first_token_seconds", "From submit.")),
      inter_token(latency(r, "vllm:inter_token_latency_seconds", "Between tokens of a request.")),
      time_per_output_token(latency(r, "vllm:request_time_per_output_token_seconds",
                                    "Mean of a request after its first token.")),
      end_to_end(latency(r, "vllm:e2e_request_latency_seconds", "From submit to the end.")),
      queue_time(latency(r, "vllm:request_queue_time_seconds", "From submit to admission.")),
      prefill_time(
          latency(r, "vllm:request_prefill_time_seconds", "From admission to the first token.")),
      decode_time(
          latency(r, "vllm:request_decode_time_seconds", "From the first token to the last.")),
      inference_time(
          latency(r, "vllm:request_inference_time_seconds", "From admission to the end.")),
      prompt_length(tokens(r, "vllm:request_prompt_tokens", "Prompt tokens of a request.")),
      generation_length(tokens(r, "vllm:request_generation_tokens", "Output of a request.")),
      max_tokens(tokens(r, "vllm:request_params_max_tokens", "max_tokens asked for.")),
      iteration_tokens(tokens(r, "vllm:iteration_tokens_total", "Rows of a step.")),
      step_seconds(r.histogram("hadal_step_seconds", "From launch to launch.", kStepBounds)),
      step_outside_seconds(r.histogram("hadal_step_outside_model_seconds",
                                       "Of a step, while nothing ran.", kStepBounds)) {
  for (size_t i = 0; i < finished.size(); ++i) {
    const std::string name(types::finish_reason_name(static_cast<types::FinishReason>(i)));
    finished[i] = &r.counter("vllm:request_success_total", "Requests by how they ended.",
                             {{"finished_reason", name}});
  }
  for (size_t i = 0; i < cache_misses.size(); ++i) {
    const std::string name(types::cache_miss_name(static_cast<types::CacheMiss>(i)));
    cache_misses[i] = &r.counter("hadal_prefix_cache_misses_total",
                                 "Admitted requests by why the cached part of the prompt ended.",
                                 {{"reason", name}});
  }
}

}  // namespace hadal::step
