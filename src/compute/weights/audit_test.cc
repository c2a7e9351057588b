#include "compute/weights/audit.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "compute/weights/layout.h"
#include "compute/weights/memory_plan.h"
#include "compute/weights/random_checkpoint.h"
#include "compute/weights/random_values.h"
#include "compute/weights/read_file.h"

namespace hadal::weights {
namespace {

const std::string kData = std::string(HADAL_SOURCE_DIR) + "/src/compute/weights/testdata/";
const std::string kTiny = kData + "tiny_config.json";

class Scratch {
 public:
  Scratch() {
    std::string pattern = testing::TempDir() + "/auditXXXXXX";
    path = mkdtemp(pattern.data());
  }
  ~Scratch() { std::filesystem::remove_all(path); }
  std::string path;
};

std::string make_tiny(const Scratch& scratch, const std::string& name, uint64_t seed = 1,
                      uint64_t shard_bytes = 0) {
  RandomCheckpointOptions options;
  options.config_path = kTiny;
  options.folder = scratch.path + "/" + name;
  options.seed = seed;
  options.shard_bytes = shard_bytes;
  const auto made = write_random_checkpoint(options);
  EXPECT_TRUE(made.has_value()) << made.error().message;
  return options.folder;
}

AuditReport audit_of(const std::string& folder, const AuditOptions& options = {}) {
  const auto config = load_model_config(kTiny);
  const auto checkpoint = Checkpoint::open(folder);
  EXPECT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  return audit(**checkpoint, *config, options);
}

// Rewrites the header of a one-file checkpoint; the length must stay.
void edit_header(const std::string& folder, const std::string& from, const std::string& to) {
  ASSERT_EQ(from.size(), to.size());
  const std::string path = folder + "/model.safetensors";
  std::string bytes = *read_file(path, 1 << 30);
  size_t n_edits = 0;
  for (size_t at = bytes.find(from); at != std::string::npos; at = bytes.find(from, at + 1)) {
    bytes.replace(at, to.size(), to);
    ++n_edits;
  }
  ASSERT_GT(n_edits, 0u) << from;
  std::ofstream(path, std::ios::binary) << bytes;
}

// Overwrites one byte of a tensor in the file.
void poke(const std::string& folder, const std::string& name, size_t at, uint8_t byte) {
  size_t place = 0;
  {
    const auto file = *read_file(folder + "/model.safetensors", 1 << 30);
    const auto entries = parse_safetensors_header(
        {reinterpret_cast<const std::byte*>(file.data()), file.size()}, "f");
    for (const SafetensorsEntry& entry : *entries) {
      if (entry.name == name) place = entry.begin + at;
    }
  }
  ASSERT_GT(place, at);
  std::fstream file(folder + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(place));
  file.put(static_cast<char>(byte));
}

bool has_line(const AuditReport& report, const std::string& text) {
  for (const std::string& line : report.lines) {
    if (line.find(text) != std::string::npos) return true;
  }
  return false;
}

TEST(RandomCheckpoint, PassesItsAudit) {
  const Scratch scratch;
  const AuditReport report = audit_of(make_tiny(scratch, "m"), {.engram_tables = true});
  EXPECT_EQ(report.n_problems, 0u) << (report.lines.empty() ? "" : report.lines[0]);
  EXPECT_EQ(report.n_tensors, 806u);
  EXPECT_TRUE(report.has_draft);
  EXPECT_TRUE(report.has_vision);
  EXPECT_EQ(report.scales.at("layers.*.attn.wkv.scale").n_tensors, 8u);
}

TEST(RandomCheckpoint, SameSeedSameTensorsHoweverTheyAreSharded) {
  const Scratch scratch;
  const auto one = Checkpoint::open(make_tiny(scratch, "one", 7));
  const auto many = Checkpoint::open(make_tiny(scratch, "many", 7, 1 << 20));
  const auto other = Checkpoint::open(make_tiny(scratch, "other", 8));
  EXPECT_GT((*many)->shards().size(), 5u);
  size_t n_changed = 0;
  for (const auto& [name, tensor] : (*one)->tensors()) {
    const Tensor* twin = (*many)->find(name);
    ASSERT_NE(twin, nullptr) << name;
    EXPECT_TRUE(std::ranges::equal(tensor.bytes, twin->bytes)) << name;
    n_changed += std::ranges::equal(tensor.bytes, (*other)->find(name)->bytes) ? 0 : 1;
  }
  EXPECT_GT(n_changed, 750u);
}

TEST(RandomCheckpoint, PiecesJoinToTheWhole) {
  const auto config = load_model_config(kTiny);
  const ExpectedTensor tensor{"layers.0.attn.wq_b.weight", StoredType::kE4m3, {512, 128}};
  const RandomSource source{5, &*config};
  std::vector<std::byte> whole(65536), pieces(65536);
  random_bytes(source, tensor, 0, whole);
  for (size_t at = 0; at < pieces.size(); at += kRandomPiece)
    random_bytes(source, tensor, at, std::span(pieces).subspan(at, kRandomPiece));
  EXPECT_EQ(whole, pieces);
}

TEST(RandomCheckpoint, RefusesFoldersThatHoldSomethingOrCannotBeWritten) {
  const Scratch scratch;
  RandomCheckpointOptions options;
  options.config_path = kTiny;
  options.folder = scratch.path;
  std::ofstream(scratch.path + "/mine") << "x";
  EXPECT_NE(write_random_checkpoint(options).error().message.find("is not an empty folder"),
            std::string::npos);
  options.folder = scratch.path + "/mine/model";
  const auto made = write_random_checkpoint(options);
  ASSERT_FALSE(made.has_value());
  EXPECT_NE(made.error().message.find("cannot write"), std::string::npos) << made.error().message;
  options.config_path = scratch.path + "/none.json";
  EXPECT_NE(write_random_checkpoint(options).error().message.find("none.json"), std::string::npos);
}

TEST(RandomCheckpoint, LeavesNothingBehindWhenTheDiskFillsUp) {
  const Scratch scratch;
  RandomCheckpointOptions options;
  options.config_path = kTiny;
  options.folder = scratch.path + "/m";
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{1 << 20, before.rlim_max};  // a write beyond fails, as on a full disk
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const auto made = write_random_checkpoint(options);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(made.has_value());
  EXPECT_NE(made.error().message.find("cannot write"), std::string::npos) << made.error().message;
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path));
}

TEST(Audit, ListsMissingExtraMisshapedAndMistypedTensorsTogether) {
  const Scratch scratch;
  const std::string folder = make_tiny(scratch, "m");
  edit_header(folder, "\"layers.0.attn.wkv.weight\"", "\"layers.0.attn.wkw.weight\"");
  edit_header(folder, "\"layers.1.attn_norm.weight\":{\"dtype\":\"BF16\",\"shape\":[256]",
              "\"layers.1.attn_norm.weight\":{\"dtype\":\"BF16\",\"shape\":[2,1]");
  // The shape above no longer fits its bytes: that is a damaged file, found on opening.
  EXPECT_NE(Checkpoint::open(folder).error().message.find("cannot have"), std::string::npos);
  edit_header(folder, "\"BF16\",\"shape\":[2,1]", "\"BF16\",\"shape\":[256]");
  edit_header(folder, "\"layers.2.attn_norm.weight\":{\"dtype\":\"BF16\"",
              "\"layers.2.attn_norm.weight\":{\"dtype\":\"F16 \"");
  edit_header(folder, "\"shape\":[512,256],\"data_offsets\":[0,",
              "\"shape\":[256,512],\"data_offsets\":[0,");
  const AuditReport report = audit_of(folder);
  EXPECT_TRUE(has_line(report, "layers.0.attn.wkv.weight: missing; must be F8_E4M3 [64, 256]"));
  EXPECT_TRUE(has_line(report, "layers.0.attn.wkw.weight: is no tensor of this config"));
  EXPECT_TRUE(has_line(report, "layers.2.attn_norm.weight: has type F16 , must have BF16"));
  EXPECT_TRUE(has_line(report, "embed.weight: has shape [256, 512], must have [512, 256]"));
  EXPECT_EQ(report.n_problems, 4u);
}

TEST(Audit, CountsNanBytesAndRefusesThem) {
  const Scratch scratch;
  const std::string folder = make_tiny(scratch, "m");
  poke(folder, "layers.0.attn.wkv.weight", 100, 0x7F);
  poke(folder, "layers.0.attn.wkv.weight", 101, 0xFF);
  poke(folder, "layers.3.ffn.experts.2.w1.scale", 5, 0xFF);
  poke(folder, "layers.1.engram.embed.weight", 77, 0x7F);
  const AuditReport report = audit_of(folder);
  EXPECT_TRUE(has_line(report, "layers.0.attn.wkv.weight: 2 of 16384 values are NaN"));
  EXPECT_TRUE(has_line(report, "layers.3.ffn.experts.2.w1.scale: 1 of 1024 values are NaN"));
  EXPECT_EQ(report.n_not_finite, 3u);
  EXPECT_EQ(audit_of(folder, {.engram_tables = true}).n_not_finite, 4u);
  EXPECT_EQ(audit_of(folder, {.values = false}).n_problems, 0u);
  uint64_t last = 0, of = 0;
  const AuditReport told =
      audit_of(folder, {.n_threads = 1, .on_progress = [&](uint64_t done, uint64_t total) {
                          EXPECT_GT(done, last);
                          last = done;
                          of = total;
                        }});
  EXPECT_EQ(last, told.n_scanned_bytes);
  EXPECT_EQ(of, told.n_scanned_bytes);
  const auto config = load_model_config(kTiny);
  const auto status = audit_checkpoint(**Checkpoint::open(folder), *config);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, core::Code::kCorrupt);
  EXPECT_NE(status.error().message.find("get the checkpoint again"), std::string::npos);
}

TEST(Audit, DraftAndVisionMayBeAbsentOnlyAsAWhole) {
  const Scratch scratch;
  const std::string folder = make_tiny(scratch, "m");
  // Names of another group, as long as the old ones: all of mtp.* become extras of one kind.
  edit_header(folder, "\"mtp.1.", "\"mtq.1.");
  const AuditReport part = audit_of(folder, {.values = false});
  EXPECT_GT(part.n_problems, 50u);
  EXPECT_EQ(part.lines.size(), AuditReport::kMaxLines);
  edit_header(folder, "\"mtp.0.", "\"mtq.0.");
  const AuditReport whole = audit_of(folder, {.values = false});
  EXPECT_FALSE(whole.has_draft);
  EXPECT_FALSE(has_line(whole, "missing"));
}

TEST(Audit, CountsEveryKindOfValueThatIsNoNumber) {
  std::vector<std::byte> all(256);
  for (size_t i = 0; i < 256; ++i) all[i] = static_cast<std::byte>(i);
  EXPECT_EQ(count_not_finite(StoredType::kE4m3, all), 2u);
  EXPECT_EQ(count_not_finite(StoredType::kE8m0, all), 1u);
  EXPECT_EQ(count_not_finite(StoredType::kI8, all), 0u);
  std::vector<std::byte> bf16(2 * 65536);
  for (uint32_t i = 0; i < 65536; ++i) {
    bf16[2 * i] = static_cast<std::byte>(i & 0xFF);
    bf16[2 * i + 1] = static_cast<std::byte>(i >> 8);
  }
  EXPECT_EQ(count_not_finite(StoredType::kBf16, bf16), 256u);
}

TEST(MemoryPlan, HasThePublishedFigures) {
  const auto config = load_model_config(kData + "released_config.json");
  const MemoryPlan plan = make_memory_plan(*config);
  EXPECT_EQ(plan.kv_bytes_per_token, 890);
  EXPECT_EQ(plan.window_bytes_per_sequence, 40 * 128 * 528);
  EXPECT_EQ(plan.engram_table_bytes, (uint64_t{384006168} + 384016682) * 264);
  EXPECT_EQ(plan.engram_bytes_per_token, 2 * 24 * 264);
}

}  // namespace
}  // namespace hadal::weights
