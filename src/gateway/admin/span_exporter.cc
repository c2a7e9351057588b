#include "gateway/admin/span_exporter.h"

#include <algorithm>

#include "base/core/log.h"

namespace hadal::admin {
namespace {

metrics::Counter& dropped(metrics::Registry& registry, std::string reason) {
  return registry.counter("hadal_spans_dropped_total", "Spans that no collector got.",
                          {{"reason", std::move(reason)}});
}

}  // namespace

SpanExporter::SpanExporter(SpanExporterConfig config, metrics::Registry& registry)
    : config_(std::move(config)),
      sent_(registry.counter("hadal_spans_exported_total", "Spans that a collector took.")),
      dropped_full_(dropped(registry, "queue_full")),
      dropped_not_sent_(dropped(registry, "not_sent")),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

SpanExporter::~SpanExporter() {
  thread_.request_stop();
  wake_.notify_all();
}

void SpanExporter::offer(metrics::Span span) {
  {
    const std::lock_guard lock(mutex_);
    if (queue_.size() < config_.max_queued) {
      queue_.push_back(std::move(span));
      if (queue_.size() != config_.max_batch) return;
    } else {
      dropped_full_.add();
      return;
    }
  }
  wake_.notify_one();
}

void SpanExporter::run(const std::stop_token& stop) {
  bool last = false;
  while (!last) {
    std::vector<metrics::Span> batch;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, stop, config_.interval,
                     [this] { return queue_.size() >= config_.max_batch; });
      last = stop.stop_requested() && queue_.size() <= config_.max_batch;
      const auto n = static_cast<std::ptrdiff_t>(std::min(queue_.size(), config_.max_batch));
      batch.assign(std::make_move_iterator(queue_.begin()),
                   std::make_move_iterator(queue_.begin() + n));
      queue_.erase(queue_.begin(), queue_.begin() + n);
    }
    if (batch.empty()) continue;
    send(std::move(batch));
    if (stop.stop_requested() && failing_) {
      const std::lock_guard lock(mutex_);
      dropped_not_sent_.add(queue_.size());
      return;  // the collector is away: the end does not wait for it
    }
  }
}

void SpanExporter::send(std::vector<metrics::Span> batch) {
  const core::Status status =
      post_otlp(config_.endpoint, otlp_json(batch, config_.version), config_.timeout_ms);
  (status ? sent_ : dropped_not_sent_).add(batch.size());
  if (!status && !failing_) HADAL_LOG(kWarning, "otlp", "{}", status.error().message);
  if (status && failing_) HADAL_LOG(kInfo, "otlp", "spans are being sent again");
  failing_ = !status;
}

}  // namespace hadal::admin
