#include <cstdio>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "compute/weights/audit.h"
#include "compute/weights/engram_tables.h"
#include "compute/weights/layout.h"
#include "compute/weights/memory_plan.h"
#include "main/commands.h"

namespace hadal::main {
namespace {

using nlohmann::ordered_json;

int failed(const core::Error& error) {
  fmt::print(stderr, "hadal: {}\n", error.message);
  return 1;
}

ordered_json plan_json(const weights::MemoryPlan& plan) {
  ordered_json out;
  for (const weights::WeightGroup& g : plan.groups)
    out["weights"][std::string(g.name)] = {{"tensors", g.n_tensors}, {"bytes", g.n_bytes}};
  out["engram_table_bytes"] = plan.engram_table_bytes;
  out["engram_bytes_per_token"] = plan.engram_bytes_per_token;
  out["kv_bytes_per_token"] = plan.kv_bytes_per_token;
  out["kv_entry_bytes"] = plan.entry_bytes;
  out["kv_index_key_bytes"] = plan.key_bytes;
  out["kv_records_per_token"] = plan.records_per_token;
  out["window_bytes_per_sequence"] = plan.window_bytes_per_sequence;
  out["draft_window_bytes_per_sequence"] = plan.draft_window_bytes_per_sequence;
  return out;
}

std::string thousands(uint64_t n) {
  std::string text = std::to_string(n);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

void print_plan(const weights::ModelConfig& config, const weights::MemoryPlan& plan) {
  fmt::print("\nweights by group{:>26}{:>20}\n", "tensors", "bytes");
  for (const weights::WeightGroup& g : plan.groups)
    fmt::print("  {:<30}{:>10}{:>20}\n", g.name, thousands(g.n_tensors), thousands(g.n_bytes));
  fmt::print("\nmemory plan\n");
  if (plan.engram_table_bytes > 0) {
    fmt::print("  Engram tables stay in the file: {} bytes, of which a token reads {}\n",
               thousands(plan.engram_table_bytes),
               thousands(static_cast<uint64_t>(plan.engram_bytes_per_token)));
  }
  fmt::print("  KV per token: ({} entry + {} index key) x {:g} records = {:g} bytes\n",
             plan.entry_bytes, plan.key_bytes, plan.records_per_token, plan.kv_bytes_per_token);
  fmt::print("  KV of a full context of {} tokens: {:.0f} bytes\n",
             thousands(static_cast<uint64_t>(config.max_positions)),
             plan.kv_bytes_per_token * static_cast<double>(config.max_positions));
  fmt::print("  windows per sequence: {} layers x {} tokens x {} bytes = {} bytes", config.n_layers,
             config.window, plan.window_record_bytes,
             thousands(static_cast<uint64_t>(plan.window_bytes_per_sequence)));
  if (plan.draft_window_bytes_per_sequence > 0) {
    fmt::print("\n  windows of the draft layers: {} bytes",
               thousands(static_cast<uint64_t>(plan.draft_window_bytes_per_sequence)));
  }
  fmt::print("\n");
}

int inspect_layout(const InspectOptions& options) {
  const auto config = weights::load_model_config(options.path);
  if (!config.has_value()) return failed(config.error());
  const auto hashes = weights::make_engram_hashes(*config);
  if (!hashes.has_value()) return failed(hashes.error());
  const weights::LayoutTotals totals = weights::layout_totals(*config);
  const weights::MemoryPlan plan = weights::make_memory_plan(*config);
  if (options.json) {
    ordered_json out = {{"tensors", totals.n_tensors}, {"bytes", totals.n_bytes}};
    out["memory_plan"] = plan_json(plan);
    if (options.full) {
      weights::for_each_tensor(*config, [&out](const weights::ExpectedTensor& t) {
        out["layout"].push_back({{"name", t.name},
                                 {"dtype", weights::stored_type_name(t.type)},
                                 {"shape", t.shape},
                                 {"optional", t.optional}});
      });
    }
    fmt::print("{}\n", out.dump(1));
    return 0;
  }
  if (options.full) {
    weights::for_each_tensor(*config, [](const weights::ExpectedTensor& t) {
      fmt::print("{}\t{}\t[{}]\t{}\n", t.name, weights::stored_type_name(t.type),
                 fmt::join(t.shape, ", "), t.n_bytes());
    });
  }
  fmt::print("{} tensors, {} bytes\n", thousands(totals.n_tensors), thousands(totals.n_bytes));
  print_plan(*config, plan);
  return 0;
}

ordered_json report_json(const weights::AuditReport& report) {
  ordered_json out = {{"tensors", report.n_tensors},
                      {"bytes", report.n_bytes},
                      {"draft_layers", report.has_draft},
                      {"vision", report.has_vision},
                      {"scanned_bytes", report.n_scanned_bytes},
                      {"not_finite", report.n_not_finite},
                      {"problems", report.n_problems},
                      {"first_problems", report.lines}};
  for (const auto& [pattern, range] : report.scales) {
    out["scale_exponents"][pattern] = {{"tensors", range.n_tensors},
                                       {"low", range.low},
                                       {"high", range.high},
                                       {"zero_bytes", range.n_zero_bytes}};
  }
  return out;
}

void print_report(const weights::AuditReport& report, const weights::Checkpoint& checkpoint) {
  fmt::print("{}: {} tensors, {} bytes in {} file{}; draft layers {}, vision {}\n",
             checkpoint.folder(), thousands(report.n_tensors), thousands(report.n_bytes),
             checkpoint.shards().size(), checkpoint.shards().size() == 1 ? "" : "s",
             report.has_draft ? "present" : "absent", report.has_vision ? "present" : "absent");
  if (!report.scales.empty())
    fmt::print("\nscale exponents{:>47}{:>6}{:>6}\n", "tensors", "low", "high");
  for (const auto& [pattern, range] : report.scales) {
    fmt::print("  {:<50}{:>10}{:>6}{:>6}", pattern, range.n_tensors, range.low, range.high);
    if (range.n_zero_bytes > 0) fmt::print("  {} scales of 2^-127", range.n_zero_bytes);
    fmt::print("\n");
  }
}

int inspect_folder(const InspectOptions& options) {
  const auto config = weights::load_model_config(options.path + "/config.json");
  if (!config.has_value()) return failed(config.error());
  const auto opened = weights::Checkpoint::open(options.path);
  if (!opened.has_value()) return failed(opened.error());
  const weights::Checkpoint& checkpoint = **opened;
  const weights::AuditReport report = weights::audit(
      checkpoint, *config, {.values = !options.no_values, .engram_tables = options.engram_tables});
  const weights::MemoryPlan plan = weights::make_memory_plan(*config);
  if (options.json) {
    ordered_json out = report_json(report);
    out["memory_plan"] = plan_json(plan);
    fmt::print("{}\n", out.dump(1));
  } else {
    print_report(report, checkpoint);
    print_plan(*config, plan);
  }
  if (report.n_problems == 0) {
    if (!options.json) fmt::print("\nevery tensor is as config.json asks\n");
    return 0;
  }
  std::fflush(stdout);
  return failed(weights::audit_error(report, checkpoint));
}

}  // namespace

int cmd_inspect(const InspectOptions& options) {
  return options.layout_only ? inspect_layout(options) : inspect_folder(options);
}

}  // namespace hadal::main
