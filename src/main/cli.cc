#include "main/cli.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "main/commands.h"
#include "main/option_table.h"
#include "main/standard_output.h"

namespace hadal::main {
namespace {

constexpr const char* kVersion = "0.1.0";

// The nearest known flag or command to the first word that `app` does not know, or "".
std::string nearest(const CLI::App& app, std::string_view word) {
  std::vector<std::string> known;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    known.push_back(sub->get_name());
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  std::string best;
  size_t best_distance = std::max<size_t>(3, word.size() / 2);
  for (const std::string& name : known) {
    const size_t distance = edit_distance(word, name);
    if (distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  }
  return best;
}

int report_usage(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* where = &app;
  for (const CLI::App* sub : app.get_subcommands()) where = sub;
  std::string text = error.what();
  for (const std::string& word : where->remaining()) {
    const std::string near = nearest(*where, word.substr(0, word.find('=')));
    text = fmt::format("unknown argument {}{}", word,
                       near.empty() ? "" : fmt::format("; did you mean {}?", near));
    break;
  }
  fmt::print(stderr, "hadal: {}\nsee: {} --help\n", text,
             where == &app ? "hadal" : fmt::format("hadal {}", where->get_name()));
  return 2;
}

// Flags of every command that runs a model.
void add_model_flags(CLI::App& sub, ModelFlags& flags) {
  sub.add_option("--model", flags.model_dir, "folder with config.json, tokenizer.json and weights");
  sub.add_option("--backend", flags.backend,
                 "auto, cpu or cuda (default: auto, the GPU if there is one)");
  sub.add_option("--cpu-level", flags.cpu_level,
                 "base, avx2, avx512 or avx512bf16; the same bits on each (default: best)");
  sub.add_option("--threads", flags.threads, "threads that compute (default: all)")
      ->check(CLI::Range(1, 1024));
  sub.add_option("--prefill-chunk", flags.prefill_chunk, "prompt tokens of one step")
      ->check(CLI::Range(1, 1 << 20));
  sub.add_option("--replay", flags.replay,
                 "exact, or bounded: the upper layers see only a prompt's last window")
      ->check(CLI::IsMember({"exact", "bounded"}));
}

void add_run(CLI::App& app, RunOptions& o, std::function<int()>& chosen) {
  CLI::App* sub = app.add_subcommand("run", "answers a prompt, or chats in the terminal");
  sub->footer(
      "example: hadal run \"What does the command grep do?\"\n"
      "With no PROMPT, a text on stdin is the prompt; a terminal on stdin opens a chat.");
  sub->add_option("PROMPT", o.prompt, "the question; several words in quotes");
  add_model_flags(*sub, o.model);
  sub->add_option("--system", o.system, "what the model shall be or do, in front of everything");
  sub->add_option("--thinking", o.thinking, "off, low, high or max (default: high; demo: off)")
      ->check(CLI::IsMember({"off", "low", "high", "max"}));
  sub->add_flag("--raw", o.raw,
                "PROMPT is the whole input: no chat encoding, nothing added; control tokens may "
                "be spelt in it");
  sub->add_option("--temperature", o.temperature, "0: the likeliest (default: 1; demo: 0)")
      ->check(CLI::Range(0.0, 100.0));
  sub->add_option("--top-k", o.top_k, "draw among the k likeliest; 0: all")
      ->check(CLI::Range(0, INT32_MAX));
  sub->add_option("--top-p", o.top_p, "draw among the likeliest that sum to p")
      ->check(CLI::Range(1e-6, 1.0));
  sub->add_option("--min-p", o.min_p, "draw among those at least this share of the likeliest")
      ->check(CLI::Range(0.0, 1.0));
  sub->add_option("--repetition-penalty", o.repetition_penalty, "divides what occurred; 1: off")
      ->check(CLI::Range(0.01, 100.0));
  sub->add_option("--presence-penalty", o.presence_penalty, "off what was said at all; 0: off")
      ->check(CLI::Range(-2.0, 2.0));
  sub->add_option("--frequency-penalty", o.frequency_penalty,
                  "off for each time it was said; 0: off")
      ->check(CLI::Range(-2.0, 2.0));
  sub->add_option("--seed", o.seed, "the same seed gives the same answer (default: random)");
  sub->add_option("--max-tokens", o.max_tokens, "tokens of an answer at most")
      ->check(CLI::Range(1u, UINT32_MAX));
  sub->callback([&] { chosen = [&] { return cmd_run(o); }; });
}

void add_generate(CLI::App& app, GenerateOptions& o, std::function<int()>& chosen) {
  CLI::App* sub = app.add_subcommand("generate", "answers a file of requests (OpenAI batch lines)");
  sub->footer(
      "example: hadal generate in.jsonl -o out.jsonl\n"
      "A line in: {\"custom_id\":\"1\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\","
      "\"body\":{...}}\n"
      "Results come in the order in which they are done. The same command goes on after an "
      "interruption.");
  sub->add_option("IN", o.input, "file of request lines")->required();
  sub->add_option("-o,--output", o.output, "file of result lines; results in it are kept")
      ->required();
  add_model_flags(*sub, o.model);
  sub->add_option("--max-running", o.max_running, "answers that are generated at a time")
      ->check(CLI::Range(1, 16384));
  sub->callback([&] { chosen = [&] { return cmd_generate(o); }; });
}

void add_encode(CLI::App& app, EncodeOptions& o, std::function<int()>& chosen) {
  CLI::App* sub = app.add_subcommand("encode", "a request's prompt, as text and token ids");
  sub->footer(
      "example: hadal encode body.json --api messages --tokenizer tokenizer.json\n"
      "With --stdin-jsonl each line of stdin is one case, and each line of stdout its answer.");
  sub->add_option("BODY", o.body, "file with the request's JSON; - is stdin");
  sub->add_option("--api", o.api, "chat, messages, responses, completions or conversation")
      ->check(CLI::IsMember({"chat", "messages", "responses", "completions", "conversation"}));
  sub->add_option("--model-version", o.model_version, "the prompt format: v4 or v4.1")
      ->check(CLI::IsMember({"v4", "v4.1"}));
  sub->add_option("--profile", o.profile, "recipe, or reference: the checkpoint's own encoder")
      ->check(CLI::IsMember({"recipe", "reference"}));
  sub->add_option("--compat", o.compat, "recipe: what deepseek-recipe 0.2.0 does, faults included")
      ->check(CLI::IsMember({"recipe"}));
  sub->add_option("--model", o.model_dir, "folder with tokenizer.json (default: the demo model)");
  sub->add_option("--tokenizer", o.tokenizer, "tokenizer.json, instead of a model's");
  sub->add_flag("--stdin-jsonl", o.stdin_jsonl, "batch mode: one JSON object a line");
  sub->callback([&] { chosen = [&] { return cmd_encode(o); }; });
}

void add_selfcheck(CLI::App& app, SelfcheckOptions& o, std::function<int()>& chosen) {
  CLI::App* sub = app.add_subcommand(
      "selfcheck", "the same prompts give the same ids in every way this machine can run them");
  sub->footer("example: hadal selfcheck --model DIR");
  add_model_flags(*sub, o.model);
  sub->add_option("--max-tokens", o.n_new, "ids to generate after each prompt")
      ->check(CLI::Range(1, 4096));
  CLI::Option* expect = sub->add_option(
      "--expect", o.expect, "file of stored answers; default: selfcheck.json of the model folder");
  sub->add_option("--write", o.write, "stores this machine's answers in a file (CPU only)")
      ->excludes(expect);
  sub->callback([&] { chosen = [&] { return cmd_selfcheck(o); }; });
}

void add_decode(CLI::App& app, DecodeOptions& o, std::function<int()>& chosen) {
  CLI::App* sub = app.add_subcommand("decode", "a model's output as the answer of an API");
  sub->footer("example: hadal decode --api chat --request body.json --stream < output.txt");
  sub->add_option("--model", o.model_dir, "model folder, for its tokenizer.json");
  sub->add_option("--tokenizer", o.tokenizer, "a tokenizer.json in place of the model's");
  sub->add_option("--api", o.api, "chat, messages, responses or completions")
      ->check(CLI::IsMember({"chat", "messages", "responses", "completions"}));
  sub->add_option("--request", o.request, "file with the body of the request");
  sub->add_option("--model-version", o.model_version, "v4 or v4.1")
      ->check(CLI::IsMember({"v4", "v4.1"}));
  sub->add_option("--compat", o.compat, "recipe: as deepseek-recipe 0.2.0, its faults included")
      ->check(CLI::IsMember({"recipe"}));
  sub->add_option("--finish", o.finish, "why the output ended: stop, length or content_filter")
      ->check(CLI::IsMember({"stop", "length", "content_filter"}));
  sub->add_option("--response-id", o.response_id, "id of the answer");
  sub->add_flag("--stream", o.stream, "server-sent events; else one object");
  sub->add_flag("--stdin-jsonl", o.stdin_jsonl, "one case a line on stdin, one answer a line");
  sub->callback([&] { chosen = [&] { return cmd_decode(o); }; });
}

void add_score(CLI::App& app, ScoreOptions& o, std::function<int()>& chosen) {
  CLI::App* sub = app.add_subcommand("score", "log-probabilities of given token ids");
  sub->footer("example: hadal score --model DIR --tokens ids.json --top-n 3 --logits out.npy");
  add_model_flags(*sub, o.model);
  sub->add_option("--tokens", o.tokens, "JSON array of token ids; nothing is added")->required();
  sub->add_option("--logits", o.logits, "also write f32 [n, vocab] logits to this .npy file");
  sub->add_option("--top-n", o.top_n, "list the n likeliest ids at each position")
      ->check(CLI::Range(0, 1000));
  sub->add_flag("--plan", o.plan, "print the planned bytes of memory to stderr");
  sub->callback([&] { chosen = [&] { return cmd_score(o); }; });
}

void add_make_model(CLI::App& app, MakeModelOptions& o, std::function<int()>& chosen) {
  CLI::App* sub = app.add_subcommand("make-model", "write a checkpoint of random weights");
  sub->footer("example: hadal make-model config.json -o DIR --seed 1 --tokenizer tokenizer.json");
  sub->add_option("config", o.config, "config.json of the model; copied into the folder")
      ->required();
  sub->add_option("-o,--output", o.output, "folder to make; must not hold anything")->required();
  sub->add_option("--seed", o.seed, "the same seed gives the same bytes (default 0)");
  sub->add_option("--tokenizer", o.tokenizer, "tokenizer.json to copy into the folder");
  sub->add_option("--shard-bytes", o.shard_bytes, "bytes of one file at most (default: one file)")
      ->transform(CLI::AsSizeValue(false));
  sub->callback([&] { chosen = [&] { return cmd_make_model(o); }; });
}

void add_inspect(CLI::App& app, InspectOptions& o, std::function<int()>& chosen) {
  CLI::App* sub = app.add_subcommand("inspect", "compare a checkpoint with its config.json");
  sub->footer("example: hadal inspect DIR; hadal inspect --layout-only config.json");
  sub->add_option("path", o.path, "model folder; with --layout-only a config.json")->required();
  sub->add_flag("--layout-only", o.layout_only, "what a checkpoint of this config.json must hold");
  sub->add_flag("--full", o.full, "with --layout-only: every tensor");
  sub->add_flag("--no-values", o.no_values, "names, types and shapes only: reads no weights");
  sub->add_flag("--engram-tables", o.engram_tables, "look for NaN in the Engram tables too");
  sub->add_flag("--json", o.json, "print JSON");
  sub->callback([&] { chosen = [&] { return cmd_inspect(o); }; });
}

void add_bench_cache(CLI::App& bench, BenchCacheOptions& o, std::function<int()>& chosen) {
  CLI::App* sub = bench.add_subcommand("cache", "prefix cache policy on recorded requests");
  sub->footer("example: hadal bench cache traces/ --blocks 10000");
  sub->add_option("traces", o.traces, "trace files, or folders with *.jsonl (docs/cache.md)");
  sub->add_option("--blocks", o.blocks, "cache sizes in blocks")->delimiter(',');
  sub->add_option("--percent", o.percent, "cache sizes in percent of the unique blocks")
      ->delimiter(',');
  sub->add_option("--spread-hours", o.spread_hours, "sessions begin at random over so many hours")
      ->delimiter(',');
  sub->add_option("--seed", o.seed, "of those beginnings");
  sub->add_flag("!--no-clairvoyant", o.clairvoyant, "leave out the bound that knows the future");
  sub->add_option("--capacity", o.capacity, "no trace: bytes and time of a cache of so many blocks")
      ->check(CLI::Range(16, 100'000'000));
  sub->callback([&o, &chosen] { chosen = [&o] { return cmd_bench_cache(o); }; });
}

}  // namespace

namespace {

// Arguments go to the command as they are.
void add_serve(CLI::App& app, std::function<int()>& chosen) {
  CLI::App* sub =
      app.add_subcommand("serve", "the HTTP server; hadal serve --help lists its options");
  sub->set_help_flag();
  sub->prefix_command();
  sub->callback([sub, &chosen] { chosen = [args = sub->remaining()] { return cmd_serve(args); }; });
}

void add_bench(CLI::App& bench, BenchOpsOptions& ops, BenchStepOptions& step,
               std::function<int()>& chosen) {
  CLI::App* o =
      bench.add_subcommand("ops", "ops at the released sizes, beside what the device can do");
  o->footer("example: hadal bench ops --threads 2 --json");
  o->add_option("--backend", ops.backend,
                "cpu: products of rows with packed weights (default); cuda: every op")
      ->check(CLI::IsMember({"cpu", "cuda", "cuda:fp8", "cuda:serial"}));
  o->add_option("--threads", ops.threads, "threads that compute (default 1)")
      ->check(CLI::Range(1, 1024));
  o->add_option("--cpu-level", ops.cpu_level, "base, avx2, avx512 or avx512bf16 (default: best)");
  o->add_flag("--json", ops.json, "one JSON object a line");
  o->callback([&] { chosen = [&] { return cmd_bench_ops(ops); }; });
  CLI::App* s = bench.add_subcommand("step", "prefill and decode of a model");
  s->footer(
      "example: hadal bench step --model DIR --threads 2\n"
      "With --layers N the folder needs a config.json only: it is cut to N layers of its own, the "
      "weights are random.");
  add_model_flags(*s, step.model);
  s->add_option("--prompt", step.prompt, "prompt tokens (default 2048)")
      ->check(CLI::Range(1, 1 << 20));
  s->add_option("--decode", step.decode, "decode steps timed (default 32)")
      ->check(CLI::Range(1, 1 << 16));
  s->add_option("--batch", step.batch, "sequences of the batched decode (default 8)")
      ->check(CLI::Range(1, 256));
  CLI::Option* layers =
      s->add_option("--layers", step.layers, "cut the config to so many layers, random weights")
          ->check(CLI::Range(2, 1 << 10));
  s->add_option("--seed", step.seed, "of the random weights (default 1)");
  s->add_flag("--profile", step.profile, "times of the ops of each workload, on the host")
      ->excludes(layers);
  s->add_flag("--json", step.json, "one JSON object a line");
  s->callback([&] { chosen = [&] { return cmd_bench_step(step); }; });
}

void add_bench_serve(CLI::App& bench, BenchServeOptions& o, std::function<int()>& chosen) {
  CLI::App* sub = bench.add_subcommand("serve", "open streams against a running server");
  sub->footer(
      "example: hadal serve --backend script --port 8000 & hadal bench serve --server-pid $!");
  sub->add_option("--host", o.host, "IPv4 address of the server");
  sub->add_option("--port", o.port, "its port (default 8000)");
  sub->add_option("--api-key", o.api_key, "key, if it wants one");
  sub->add_option("--streams", o.streams, "open at the same time (default 5000)")
      ->check(CLI::Range(1, 60000));
  sub->add_option("--opens-per-second", o.opens_per_second, "how fast they open (default 2500)")
      ->check(CLI::Range(1, 1'000'000));
  sub->add_option("--seconds", o.seconds, "of the measured window (default 10)")
      ->check(CLI::Range(0.1, 3600.0));
  sub->add_option("--pace-ms", o.pace_ms, "between two events of a stream (default 100)")
      ->check(CLI::Range(1, 3'600'000));
  sub->add_option("--step", o.step, "tokens of an event (default 1)")->check(CLI::Range(1, 1024));
  sub->add_option("--server-pid", o.server_pid, "process whose memory and CPU are reported");
  sub->callback([&] { chosen = [&] { return cmd_bench_serve(o); }; });
}

}  // namespace

int run_cli(int argc, char** argv) {
  CLI::App app{"Hadal: inference for DeepSeek-V4.1-Flash", "hadal"};
  app.set_version_flag("--version", kVersion);
  app.require_subcommand(1);
  std::function<int()> chosen;

  // Commands in the order of docs/architecture.md 3.2.
  RunOptions run;
  add_run(app, run, chosen);
  add_serve(app, chosen);
  GenerateOptions generate;
  add_generate(app, generate, chosen);
  EncodeOptions encode;
  add_encode(app, encode, chosen);
  DecodeOptions decode;
  add_decode(app, decode, chosen);
  ScoreOptions score;
  add_score(app, score, chosen);
  SelfcheckOptions selfcheck;
  add_selfcheck(app, selfcheck, chosen);
  MakeModelOptions make_model;
  add_make_model(app, make_model, chosen);
  InspectOptions inspect;
  add_inspect(app, inspect, chosen);

  CLI::App* bench = app.add_subcommand("bench", "named workloads, one JSON line each");
  bench->require_subcommand(1);
  BenchCacheOptions bench_cache;
  add_bench_cache(*bench, bench_cache, chosen);
  BenchOpsOptions bench_ops;
  BenchStepOptions bench_step;
  add_bench(*bench, bench_ops, bench_step, chosen);
  BenchServeOptions bench_serve;
  add_bench_serve(*bench, bench_serve, chosen);

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return report_usage(app, e);
  }
  return chosen ? run_with_checked_output(chosen) : 2;
}

}  // namespace hadal::main
