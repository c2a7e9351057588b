#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/metrics/metrics.h"
#include "base/metrics/trace.h"
#include "gateway/admin/otlp.h"

namespace hadal::admin {

struct SpanExporterConfig {
  OtlpEndpoint endpoint;
  std::string version;
  size_t max_queued = 4096;  // beyond: dropped and counted
  size_t max_batch = 512;    // spans of one export
  std::chrono::milliseconds interval{1000};
  int timeout_ms = 5000;
};

// Sends spans to a collector from its own thread. A collector that is slow or away costs spans,
// never a request: hadal_spans_dropped_total counts them by reason (queue_full, not_sent).
class SpanExporter final : public metrics::SpanSink {
 public:
  SpanExporter(SpanExporterConfig config, metrics::Registry& registry);
  ~SpanExporter() override;  // tries once to send what is queued

  void offer(metrics::Span span) override;

 private:
  void run(const std::stop_token& stop);
  void send(std::vector<metrics::Span> batch);

  const SpanExporterConfig config_;
  metrics::Counter &sent_, &dropped_full_, &dropped_not_sent_;
  bool failing_ = false;  // the thread's: one log line when it begins, one when it ends

  std::mutex mutex_;  // guards queue_
  std::condition_variable_any wake_;
  std::vector<metrics::Span> queue_;
  std::jthread thread_;
};

}  // namespace hadal::admin
