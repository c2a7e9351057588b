#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "base/core/result.h"
#include "base/types/request.h"

namespace hadal::types {

enum class SinkAnswer : uint8_t {
  kContinue,
  kStop,  // the output is complete at the last token taken: the engine discards what it computed
          // past it and ends the request with kStop
  kFull,  // the reader is slow: `n_taken` events were used; the engine keeps the others, pauses
          // this row and offers them again after EnginePort::resume, or by itself after some
          // milliseconds
};

// Where a request's tokens go. Bounded: a slow reader answers kFull and pauses its own row only.
// Thread: the engine's; must not block, and must not call the engine back except resume / cancel.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // At most once, before the first on_tokens: how much of the prompt came from the cache.
  virtual void on_start(uint32_t /*n_cached_tokens*/) {}
  // `events` in order of generation. `n_taken` says how many were used: with kStop, the tokens
  // counted in usage; with kContinue, all of them.
  virtual SinkAnswer on_tokens(std::span<const TokenEvent> events, size_t& n_taken) = 0;
  // Exactly once, after the last on_tokens; the engine forgets the sink afterwards.
  virtual void on_done(const Completion& completion) = 0;
};

// What a request may ask of this engine at most.
struct EngineLimits {
  uint32_t max_context = 0;         // tokens of prompt and output together, of the model
  uint32_t max_request_tokens = 0;  // the same, but what the whole pool could hold, if that is less
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
  // A sink that answered kFull has room again. A hint: unknown ids are ignored.
  virtual void resume(RequestId id) = 0;
  virtual EngineLimits limits() const = 0;
};

// Numbers of this moment, for pages and load reports; metrics hold the sums.
struct EngineStatus {
  uint32_t n_running = 0, n_waiting = 0, n_paused = 0;
  uint32_t n_blocks = 0, n_free_blocks = 0, n_cached_blocks = 0;  // the rest is held by sequences
  // Requests that found nothing while their first block was here for another tenant. Not for
  // clients: it tells what others have sent.
  uint64_t n_foreign_prefixes = 0;
  bool draining = false;
};

// What an operator may do to a running engine. Thread-safe.
class EngineControl {
 public:
  virtual ~EngineControl() = default;
  virtual EngineStatus status() const = 0;
  // Takes no more requests and waits for those inside, at most `grace`; then cancels the rest.
  // Returns how many were cut.
  virtual uint32_t drain(std::chrono::milliseconds grace) = 0;
  // Forgets all cached prefixes that no running request holds.
  virtual void flush_prefix_cache() = 0;
  virtual void cancel_all() = 0;
};

}  // namespace hadal::types
