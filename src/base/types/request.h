#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
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
  std::string image_salt;  // hash of the pictures' bytes, part of the block hashes from their first
                           // token on
  SamplingParams sampling;
  Constraint constraint;
  std::vector<TokenId>
      end_tokens;           // generation ends at one of these, which is not delivered as text
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

// One generated token. `finish` is set on the last event of a request; a last event may carry no
// token (n_new 0).
struct TokenEvent {
  TokenId token = 0;
  bool has_token = true;
  float logprob = 0.0f;
  std::vector<TokenLogprob> top;  // best first; empty unless asked for
  FinishReason finish = FinishReason::kNone;
  std::string error;  // with kError: what went wrong, for people
};

enum class CacheMiss : uint8_t { kNone, kCold, kDiverged, kEvicted, kSalt, kImage, kDisabled };

// What one request cost; filled when it ends.
struct Timings {
  double queue_ms = 0, prefill_ms = 0, decode_ms = 0;
  uint32_t cached_tokens_device = 0, cached_tokens_host = 0, cached_tokens_disk = 0;
  CacheMiss miss = CacheMiss::kNone;
  uint32_t first_different_token = 0;  // with kDiverged
  uint32_t n_preemptions = 0;
};

}  // namespace hadal::types
