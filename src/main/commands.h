#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "main/model_flags.h"

// One options struct and one function per subcommand; cli.cc fills the struct from flags, cmd_*.cc
// holds the function. A function returns the exit code: 0 done, 1 could not (message printed with
// the mend), 2 wrong usage.
namespace hadal::main {

struct RunOptions {
  ModelFlags model;
  std::optional<std::string> prompt;  // none: stdin if it is no terminal, else a chat
  std::string system;
  std::string thinking;  // off, low, high, max; "": the model's usual
  bool raw = false;
  std::optional<float> temperature;
  int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::optional<uint64_t> seed;
  uint32_t max_tokens = 0;  // 0: a usual number
};
int cmd_run(const RunOptions& options);

struct GenerateOptions {
  ModelFlags model;
  std::string input, output;  // JSON lines
  uint32_t max_running = 0;   // 0: the engine's choice
};
int cmd_generate(const GenerateOptions& options);

struct EncodeOptions {
  std::string body;  // file, "-": stdin
  std::string api = "chat";
  std::string model_version = "v4.1";
  std::string profile = "recipe";
  std::string compat;  // "recipe" or ""
  std::string model_dir, tokenizer;
  bool stdin_jsonl = false;
};
int cmd_encode(const EncodeOptions& options);

struct DecodeOptions {
  std::string model_dir, tokenizer;
  std::string api = "chat", request;
  std::string model_version = "v4.1", compat, finish = "stop", response_id = "r1";
  bool stream = false, stdin_jsonl = false;
};
int cmd_decode(const DecodeOptions& options);

struct ScoreOptions {
  ModelFlags model;
  std::string tokens;  // JSON array of ids
  std::string logits;  // npy file, "": none
  int32_t top_n = 0;
  bool plan = false;
};
int cmd_score(const ScoreOptions& options);

struct SelfcheckOptions {
  ModelFlags model;
  int32_t n_new = 16;  // ids to generate after each prompt
  std::string expect;  // stored answers; "": selfcheck.json of the model folder, if it is there
  std::string write;   // "": nothing is stored
};
int cmd_selfcheck(const SelfcheckOptions& options);

struct MakeModelOptions {
  std::string config;
  std::string output;
  std::string tokenizer;  // "": none
  uint64_t seed = 0;
  uint64_t shard_bytes = 0;  // 0: one file
};
int cmd_make_model(const MakeModelOptions& options);

struct InspectOptions {
  std::string path;            // model folder; with layout_only a config.json
  bool layout_only = false;    // what a checkpoint of the config must hold
  bool full = false;           // with layout_only: one line a tensor
  bool no_values = false;      // do not read the weights
  bool engram_tables = false;  // read the Engram tables too
  bool json = false;
};
int cmd_inspect(const InspectOptions& options);

// Takes its arguments as they are: its options are those of a file, too (main/option_table.h).
int cmd_serve(const std::vector<std::string>& args);

struct BenchCacheOptions {
  std::vector<std::string> traces;  // files or folders
  std::vector<uint32_t> blocks;     // cache sizes; empty: the usual ones of each kind of trace
  std::vector<double> percent;      // the same as shares of the trace's unique blocks
  std::vector<double> spread_hours{24, 2};  // over which sessions without start times begin
  uint64_t seed = 1;
  bool clairvoyant = true;
  uint32_t capacity = 0;  // not 0: measure policy and index at this many blocks, without a trace
};
int cmd_bench_cache(const BenchCacheOptions& options);

// Products beside this machine's limits, one line a workload.
struct BenchOpsOptions {
  std::string backend = "cpu";
  std::string cpu_level;
  int threads = 1;
  bool json = false;
};
int cmd_bench_ops(const BenchOpsOptions& options);

// Whole steps of a model beside the time that its bytes or products need at least.
struct BenchStepOptions {
  ModelFlags model;
  int32_t prompt = 2048;  // tokens of the prefill
  int32_t decode = 32;    // decode steps timed
  int32_t batch = 8;      // sequences of the batched decode
  int32_t layers = 0;     // not 0: random weights, the config cut to so many layers
  uint64_t seed = 1;      // of random weights
  bool profile = false;   // times of the ops; host only, not with `layers`
  bool json = false;
};
int cmd_bench_step(const BenchStepOptions& options);

// Open streams against a running server with the script backend.
struct BenchServeOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  std::string api_key;
  uint32_t streams = 5000;
  uint32_t opens_per_second = 2500;
  double seconds = 10;     // of the measured window, all streams open
  uint32_t pace_ms = 100;  // between two events of a stream
  uint32_t step = 1;       // tokens of an event
  int server_pid = 0;      // its memory and CPU are reported; 0: not
};
int cmd_bench_serve(const BenchServeOptions& options);

}  // namespace hadal::main
