#include "compute/weights/audit.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstring>
#include <thread>
#include <unordered_set>

#include <fmt/format.h>

#include "compute/weights/layout.h"

namespace hadal::weights {
namespace {

constexpr size_t kPiece = 16 << 20;  // what a thread takes at once
constexpr size_t kChunk = 8192;      // what is tested before anything is counted

bool starts_with(std::string_view text, std::string_view start) {
  return text.starts_with(start);
}
bool is_draft(std::string_view name) {
  return starts_with(name, "mtp.");
}
bool is_vision(std::string_view name) {
  return starts_with(name, "vision.") || starts_with(name, "aligner.") ||
         starts_with(name, "image_");
}
bool is_table(std::string_view name) {
  return name.find(".engram.embed.") != std::string_view::npos;
}

// "layers.3.attn.wq_a.scale" -> "layers.*.attn.wq_a.scale".
std::string pattern_of(std::string_view name) {
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(name[i])) != 0;
    const bool starts = digit && (out.empty() || out.back() == '.');
    if (!starts) {
      out += name[i];
      continue;
    }
    size_t end = i;
    while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end])) != 0) ++end;
    if (end == name.size() || name[end] == '.') {
      out += '*';
      i = end - 1;
    } else {
      out += name[i];
    }
  }
  return out;
}

void note(AuditReport& report, std::string line) {
  if (report.lines.size() < AuditReport::kMaxLines) report.lines.push_back(std::move(line));
  ++report.n_problems;
}

uint64_t count_not_bf16(std::span<const std::byte> bytes) {
  uint64_t n = 0;
  for (size_t at = 0; at + 4 <= bytes.size(); at += 4) {
    uint32_t bits = 0;
    std::memcpy(&bits, bytes.data() + at, 4);
    n += (bits & 0xFFFF) != 0 ? 1 : 0;
  }
  return n;
}

void compare(const ExpectedTensor& expected, const Checkpoint& checkpoint, AuditReport& report) {
  const Tensor* found = checkpoint.find(expected.name);
  if (found == nullptr) {
    for (const ForeignTensor& foreign : checkpoint.foreign()) {
      if (foreign.name != expected.name) continue;
      note(report, fmt::format("{}: has type {}, must have {}", expected.name, foreign.type,
                               stored_type_name(expected.type)));
      return;
    }
    note(report, fmt::format("{}: missing; must be {} [{}]", expected.name,
                             stored_type_name(expected.type), fmt::join(expected.shape, ", ")));
    return;
  }
  if (expected.f32_too && found->type == StoredType::kF32) {
    if (const uint64_t n = count_not_bf16(found->bytes); n > 0) {
      note(report, fmt::format("{}: {} of its F32 values are no bf16 numbers; must have {}",
                               expected.name, n, stored_type_name(expected.type)));
    }
  } else if (found->type != expected.type) {
    note(report, fmt::format("{}: has type {}, must have {}", expected.name,
                             stored_type_name(found->type), stored_type_name(expected.type)));
  }
  if (found->shape != expected.shape) {
    note(report, fmt::format("{}: has shape [{}], must have [{}]", expected.name,
                             fmt::join(found->shape, ", "), fmt::join(expected.shape, ", ")));
  }
}

void compare_layout(const Checkpoint& checkpoint, const ModelConfig& config, AuditReport& report) {
  std::unordered_set<std::string> expected_names;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    report.has_draft |= is_draft(name);
    report.has_vision |= is_vision(name);
  }
  for_each_tensor(config, [&](const ExpectedTensor& expected) {
    expected_names.insert(expected.name);
    if (expected.optional && is_draft(expected.name) && !report.has_draft) return;
    if (expected.optional && is_vision(expected.name) && !report.has_vision) return;
    compare(expected, checkpoint, report);
  });
  std::vector<std::string> extra;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!expected_names.contains(name)) extra.push_back(name);
  }
  for (const ForeignTensor& foreign : checkpoint.foreign()) {
    if (!expected_names.contains(foreign.name)) extra.push_back(foreign.name);
  }
  std::sort(extra.begin(), extra.end());
  for (const std::string& name : extra)
    note(report, fmt::format("{}: is no tensor of this config", name));
}

template <typename Word, Word kMask, Word kBad>
uint64_t count_masked(std::span<const std::byte> bytes) {
  uint64_t n = 0;
  const size_t per_chunk = kChunk / sizeof(Word);
  Word words[kChunk / sizeof(Word)];
  for (size_t at = 0; at < bytes.size(); at += kChunk) {
    const size_t n_words = std::min(per_chunk, (bytes.size() - at) / sizeof(Word));
    std::memcpy(words, bytes.data() + at, n_words * sizeof(Word));
    Word any = 0;
    for (size_t i = 0; i < n_words; ++i)
      any = static_cast<Word>(any | ((words[i] & kMask) == kBad ? 1 : 0));
    if (any == 0) continue;
    for (size_t i = 0; i < n_words; ++i) n += (words[i] & kMask) == kBad ? 1 : 0;
  }
  return n;
}

struct Piece {
  const std::string* name;
  const Tensor* tensor;
  std::span<const std::byte> bytes;
  bool first = false;
  uint64_t n_bad = 0;
  uint8_t low = 255, high = 0;  // of E8M0 bytes
  uint64_t n_zero = 0;
};

void scan(Piece& piece) {
  piece.n_bad = count_not_finite(piece.tensor->type, piece.bytes);
  if (piece.tensor->type != StoredType::kE8m0) return;
  const auto* at = reinterpret_cast<const uint8_t*>(piece.bytes.data());
  uint8_t low = 255, high = 0;
  for (size_t i = 0; i < piece.bytes.size(); ++i) {
    low = std::min(low, at[i]);
    high = std::max(high, at[i] == 255 ? uint8_t{0} : at[i]);
  }
  piece.low = low;
  piece.high = high;
  if (low == 0) piece.n_zero = static_cast<uint64_t>(std::count(at, at + piece.bytes.size(), 0));
}

std::vector<Piece> cut(const Checkpoint& checkpoint, const AuditOptions& options) {
  std::vector<Piece> pieces;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (tensor.type == StoredType::kI8 || (is_table(name) && !options.engram_tables)) continue;
    for (size_t at = 0; at < tensor.bytes.size(); at += kPiece) {
      pieces.push_back({&name, &tensor,
                        tensor.bytes.subspan(at, std::min(kPiece, tensor.bytes.size() - at)),
                        at == 0});
    }
  }
  // In the order of the files, so that a disk reads ahead.
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return a.tensor->shard != b.tensor->shard ? a.tensor->shard < b.tensor->shard
                                              : a.bytes.data() < b.bytes.data();
  });
  return pieces;
}

void scan_values(const Checkpoint& checkpoint, const AuditOptions& options, AuditReport& report) {
  std::vector<Piece> pieces = cut(checkpoint, options);
  uint64_t total = 0;
  for (const Piece& piece : pieces) total += piece.bytes.size();
  std::atomic<size_t> next{0};
  std::atomic<uint64_t> done{0};
  const auto work = [&](bool tells) {
    for (size_t i = next++; i < pieces.size(); i = next++) {
      scan(pieces[i]);
      checkpoint.drop(pieces[i].bytes);  // of this process, not of the page cache
      done += pieces[i].bytes.size();
      if (tells && options.on_progress) options.on_progress(done, total);
    }
  };
  const auto all = static_cast<int32_t>(std::thread::hardware_concurrency());
  const int32_t n_threads = std::max(1, options.n_threads > 0 ? options.n_threads : all);
  std::vector<std::thread> threads;
  for (int32_t t = 1; t < n_threads; ++t) threads.emplace_back(work, false);
  work(true);
  for (std::thread& thread : threads) thread.join();

  for (size_t i = 0; i < pieces.size();) {
    const Piece& head = pieces[i];
    uint64_t n_bad = 0;
    for (; i < pieces.size() && pieces[i].tensor == head.tensor; ++i) {
      const Piece& piece = pieces[i];
      n_bad += piece.n_bad;
      report.n_scanned_bytes += piece.bytes.size();
      if (piece.tensor->type != StoredType::kE8m0) continue;
      ScaleRange& range = report.scales[pattern_of(*piece.name)];
      range.n_tensors += piece.first ? 1 : 0;
      range.low = std::min(range.low, piece.low - 127);
      range.high = std::max(range.high, piece.high - 127);
      range.n_zero_bytes += piece.n_zero;
    }
    if (n_bad == 0) continue;
    report.n_not_finite += n_bad;
    note(report, fmt::format("{}: {} of {} values are NaN or infinite", *head.name, n_bad,
                             head.tensor->n_elements()));
  }
}

}  // namespace

uint64_t count_not_finite(StoredType type, std::span<const std::byte> bytes) {
  switch (type) {
    case StoredType::kE4m3:
      return count_masked<uint8_t, 0x7F, 0x7F>(bytes);
    case StoredType::kE8m0:
      return count_masked<uint8_t, 0xFF, 0xFF>(bytes);
    case StoredType::kBf16:
      return count_masked<uint16_t, 0x7F80, 0x7F80>(bytes);
    case StoredType::kF32:
      return count_masked<uint32_t, 0x7F800000, 0x7F800000>(bytes);
    case StoredType::kI8:
      break;
  }
  return 0;
}

AuditReport audit(const Checkpoint& checkpoint, const ModelConfig& config,
                  const AuditOptions& options) {
  AuditReport report;
  report.n_tensors = checkpoint.tensors().size() + checkpoint.foreign().size();
  report.n_bytes = checkpoint.total_bytes();
  compare_layout(checkpoint, config, report);
  if (options.values) scan_values(checkpoint, options, report);
  return report;
}

core::Error audit_error(const AuditReport& report, const Checkpoint& checkpoint) {
  std::string text = fmt::format(
      "{} does not hold the model that its config.json describes ({} problem{}); get the "
      "checkpoint again, or the config.json that belongs to it:\n  {}",
      checkpoint.folder(), report.n_problems, report.n_problems == 1 ? "" : "s",
      fmt::join(report.lines, "\n  "));
  if (report.n_problems > report.lines.size())
    text += fmt::format("\n  and {} more", report.n_problems - report.lines.size());
  return {core::Code::kCorrupt, std::move(text), "model"};
}

core::Status audit_checkpoint(const Checkpoint& checkpoint, const ModelConfig& config,
                              const AuditOptions& options) {
  const AuditReport report = audit(checkpoint, config, options);
  if (report.n_problems > 0) return audit_error(report, checkpoint);
  return {};
}

}  // namespace hadal::weights
