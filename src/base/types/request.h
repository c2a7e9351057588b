#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hadal::types {

using TokenId = int32_t;

// A client's request on this engine; unique for the life of the process.
enum class RequestId : uint64_t {};

// What the output must match. `text` is a JSON Schema, a regex or an EBNF grammar.
struct Constraint {
  enum class Kind : uint8_t { kNone, kJsonObject, kJsonSchema, kRegex, kEbnf };
  Kind kind = Kind::kNone;
  std::string text;
  // The constraint starts to hold after this text has been generated (a think section's end tag);
  // "": at once.
  std::string begins_after;
};

// How the next token is chosen. Order of application: kernels.md 2.10 (penalties, mask,
// temperature, top-k, top-p, min-p, draw). The draw is Gumbel-max with Philox keyed by (seed,
// absolute position, stream, token id).
struct SamplingParams {
  float temperature = 1.0f;  // 0: greedy, lowest id on ties
  float top_p = 1.0f;
  float min_p = 0.0f;
  int32_t top_k = 0;  // 0: no limit
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint64_t seed = 0;
  uint32_t stream = 0;  // index of the choice when n > 1
  std::vector<std::pair<TokenId, float>> logit_bias;
  bool logprobs = false;
  int32_t n_top_logprobs = 0;  // 0..20
};

// The model's part played from text (architecture.md 3.4): tokens are given, `step` at a time.
struct ScriptPlay {
  std::vector<TokenId> tokens;
  uint32_t step = 1;
  uint32_t pace_ms = 0;        // step k is due k * pace_ms after the first
  bool ends_with_stop = true;  // an end token follows the last one; else the play ends by length
};

// One sequence to generate: everything the engine needs, nothing of the protocol it came by.
struct Request {
  RequestId id{};
  std::string tenant;  // salts the prefix cache; "" is a tenant too
  std::vector<TokenId> prompt;
  std::vector<bool> image_rows;  // empty: no image; else one flag per prompt token
  // Hash of the pictures' bytes, part of the block hashes from their first token on.
  std::string image_salt;
  SamplingParams sampling;
  Constraint constraint;
  // Generation ends at one of these, which is not delivered.
  std::vector<TokenId> end_tokens;
  uint32_t max_tokens = 0;  // at least 1
  uint32_t min_tokens = 0;  // end tokens are masked before
  bool ignore_eos = false;
  int32_t priority = 0;  // higher runs first; waiting ages
  std::optional<std::chrono::steady_clock::time_point> deadline;
  bool use_prefix_cache = true;
  bool want_timings = false;
  std::optional<ScriptPlay> script;
};

enum class FinishReason : uint8_t {
  kNone,
  kStop,
  kLength,
  kContentFilter,
  kCancelled,
  kDeadline,
  kError
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0f;
};

// One generated token. A request's end is no event: it comes by TokenSink::on_done.
struct TokenEvent {
  TokenId token = 0;
  float logprob = 0.0f;                        // of `token`; 0 unless asked for
  std::vector<TokenLogprob> top;               // best first; empty unless asked for
  std::chrono::steady_clock::time_point at{};  // when the step that made it was collected
};

enum class CacheMiss : uint8_t {
  kNone,      // the whole prompt but its last, partial block came from the cache
  kCold,      // nothing like this prompt was seen
  kDiverged,  // same beginning, other tokens from `first_different_token` on
  kEvicted,   // it was here, and was given up
  kSalt,      // it is here, for another tenant
  kImage,     // the tokens are here, with other pictures
  kDisabled,  // the request or the server does not want the cache
};
std::string_view cache_miss_name(CacheMiss miss);  // "none", "cold", "diverged", ...
std::string_view finish_reason_name(FinishReason reason);

// What one request cost; filled when it ends.
struct Timings {
  double queue_ms = 0, prefill_ms = 0, decode_ms = 0;
  uint32_t cached_tokens_device = 0, cached_tokens_host = 0, cached_tokens_disk = 0;
  uint32_t replayed_tokens = 0;  // of the cached ones, run again to rebuild windows
  CacheMiss miss = CacheMiss::kNone;
  uint32_t first_different_token = 0;  // index in the prompt, with kDiverged
  uint32_t n_preemptions = 0;

  uint32_t cached_tokens() const {
    return cached_tokens_device + cached_tokens_host + cached_tokens_disk;
  }
};

// How a request ended.
struct Completion {
  FinishReason reason = FinishReason::kNone;
  std::string error;  // with kError and kDeadline: what happened, for people
  // The id that ended it with kStop, if an end token did; not delivered and not counted.
  std::optional<TokenId> end_token;
  uint32_t n_prompt_tokens = 0;
  uint32_t n_generated_tokens = 0;  // as taken by the sink
  Timings timings;
};

}  // namespace hadal::types
