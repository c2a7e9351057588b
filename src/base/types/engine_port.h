#pragma once

#include <memory>
#include <span>

#include "base/core/result.h"
#include "base/types/request.h"

namespace hadal::types {

enum class SinkAnswer : uint8_t {
  kContinue,
  kStop,  // the output is complete at the last token taken: the engine discards what it computed
          // past it
  kFull,  // nothing was taken; the engine holds the row back and offers again
};

// Where a request's tokens go. Bounded: a slow reader answers kFull and pauses its own row only.
// Thread: the engine's; must not block.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // `events` in order of generation. `n_taken` says how many were used: with kStop, the tokens
  // counted in usage.
  virtual SinkAnswer on_tokens(std::span<const TokenEvent> events, size_t& n_taken) = 0;
  // Exactly once, after the last on_tokens; the engine forgets the sink afterwards.
  virtual void on_done(FinishReason reason, const Timings& timings) = 0;
};

// The engine as everyone above it sees it: in this process, or behind a router. Thread-safe.
class EnginePort {
 public:
  virtual ~EnginePort() = default;
  // Queues the request; kOverloaded when the queue is full, kContextTooLong / kInvalidRequest when
  // it can never run, kUnavailable while draining. On success the sink is shared by the caller and
  // the engine until on_done.
  virtual core::Status submit(Request request, std::shared_ptr<TokenSink> sink) = 0;
  // Ends a request early; takes effect within one step. Unknown ids are ignored.
  virtual void cancel(RequestId id) = 0;
};

}  // namespace hadal::types
