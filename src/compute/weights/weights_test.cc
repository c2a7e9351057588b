#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/weights/checkpoint.h"
#include "compute/weights/engram_tables.h"
#include "compute/weights/layout.h"
#include "compute/weights/read_file.h"

namespace hadal::weights {
namespace {

const std::string kData = std::string(HADAL_SOURCE_DIR) + "/src/compute/weights/testdata/";

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ModelConfig, ReleasedConfigHasItsPublishedTotals) {
  const auto config = load_model_config(kData + "released_config.json");
  ASSERT_TRUE(config.has_value()) << config.error().message;
  const LayoutTotals totals = layout_totals(*config);
  EXPECT_EQ(totals.n_tensors, 96'085u);
  EXPECT_EQ(totals.n_bytes, 510'286'023'000u);
  EXPECT_EQ(config->split_layer, 20);
  EXPECT_EQ(config->roles[7].kv_source, 2);
  EXPECT_EQ(config->roles[13].index_source, 8);
  EXPECT_EQ(config->roles[27].kv_source, 20);
  EXPECT_EQ(config->roles[27].index_source, 24);
  EXPECT_TRUE(config->roles[24].uses_pool);
  EXPECT_FALSE(config->roles[20].uses_pool);
  EXPECT_TRUE(config->roles[20].makes_pool);
  EXPECT_EQ(config->roles[1].kv_source, -1);
  EXPECT_EQ(config->roles[14].engram, 1);
}

TEST(ModelConfig, TinyConfigHasItsTotals) {
  const auto config = load_model_config(kData + "tiny_config.json");
  ASSERT_TRUE(config.has_value()) << config.error().message;
  const LayoutTotals totals = layout_totals(*config);
  EXPECT_EQ(totals.n_tensors, 806u);
  EXPECT_EQ(totals.n_bytes, 11'315'866u);
  EXPECT_EQ(config->split_layer, 4);
}

TEST(ModelConfig, ReportsAllMistakesTogetherWithTheirFields) {
  const std::string good = *read_file(kData + "tiny_config.json", 1 << 20);
  const std::string bad =
      replaced(replaced(replaced(good, "\"hc_mult\": 4", "\"hc_mult\": \"four\""), "\"head_dim\"",
                        "\"head_dimension\""),
               "\"scoring_func\": \"sqrtsoftplus\"", "\"scoring_func\": \"softmax\"");
  const auto config = parse_model_config(bad, "x/config.json");
  ASSERT_FALSE(config.has_value());
  const std::string& text = config.error().message;
  EXPECT_NE(text.find("text_config.hc_mult: must be an integer"), std::string::npos) << text;
  EXPECT_NE(text.find("text_config.head_dim: missing"), std::string::npos) << text;
  EXPECT_NE(text.find("text_config.scoring_func: is \"softmax\""), std::string::npos) << text;
}

TEST(ModelConfig, RefusesContradictions) {
  const std::string good = *read_file(kData + "tiny_config.json", 1 << 20);
  EXPECT_NE(parse_model_config(replaced(good, "\"o_groups\": 2", "\"o_groups\": 3"), "c")
                .error()
                .message.find("must divide num_attention_heads"),
            std::string::npos);
  EXPECT_NE(parse_model_config(
                replaced(good, "\"num_hidden_layers\": 8", "\"num_hidden_layers\": 9"), "c")
                .error()
                .message.find("compress_ratios: has"),
            std::string::npos);
  EXPECT_NE(parse_model_config(replaced(good, "\"deepseek_v41\"", "\"llama\""), "c")
                .error()
                .message.find("model_type: is \"llama\""),
            std::string::npos);
  EXPECT_NE(parse_model_config(replaced(good, "\"deepseek_v41_text\"", "\"llama\""), "c")
                .error()
                .message.find("text_config.model_type: is \"llama\""),
            std::string::npos);
  EXPECT_FALSE(parse_model_config("", "c").has_value());
  EXPECT_FALSE(parse_model_config("[]", "c").has_value());
  EXPECT_FALSE(parse_model_config(std::string(100'000, '['), "c").has_value());
}

TEST(ModelConfig, ReadsBothSpellingsOfTheEngramPadId) {
  const std::string good = *read_file(kData + "tiny_config.json", 1 << 20);
  const std::string released =
      replaced(good, "\"engram_pad_token_id\": 2", "\"engram_pad_token_id\": 5");
  const std::string other = replaced(good, "\"engram_pad_token_id\": 2", "\"engram_pad_id\": 6");
  EXPECT_EQ(parse_model_config(released, "c")->engram.pad_token, 5);
  EXPECT_EQ(parse_model_config(other, "c")->engram.pad_token, 6);
}

TEST(EngramHash, HasThePublishedConstants) {
  const auto config = load_model_config(kData + "released_config.json");
  const auto hashes = make_engram_hashes(*config);
  ASSERT_TRUE(hashes.has_value()) << hashes.error().message;
  EXPECT_EQ((*hashes)[0].multipliers,
            (std::vector<int64_t>{76632096046245, 4839876093313, 35959672319349, 73987337458391}));
  EXPECT_EQ((*hashes)[1].multipliers,
            (std::vector<int64_t>{67716810739261, 51510806800915, 30921347202721, 82619226485591}));
  EXPECT_EQ((*hashes)[0].primes.front(), 16000057);
  EXPECT_EQ((*hashes)[0].primes.back(), 16000463);
  EXPECT_EQ((*hashes)[1].primes.front(), 16000477);
  EXPECT_EQ((*hashes)[1].primes.back(), 16000889);
  EXPECT_EQ((*hashes)[0].n_rows, 384006168);
  EXPECT_EQ((*hashes)[1].n_rows, 384016682);
}

TEST(EngramHash, HasTheTinyConstants) {
  const auto config = load_model_config(kData + "tiny_config.json");
  const auto hashes = make_engram_hashes(*config);
  ASSERT_TRUE(hashes.has_value()) << hashes.error().message;
  EXPECT_EQ((*hashes)[0].multipliers, (std::vector<int64_t>{14831304026200453, 936705081716061,
                                                            6959601268494069, 14319439928568407}));
  EXPECT_EQ((*hashes)[1].multipliers, (std::vector<int64_t>{5327545137947969, 15804252993068197,
                                                            2105304604748359, 13605204602324401}));
  EXPECT_EQ((*hashes)[0].primes, (std::vector<int64_t>{1009, 1013, 1019, 1021, 1031, 1033}));
  EXPECT_EQ((*hashes)[1].primes, (std::vector<int64_t>{1039, 1049, 1051, 1061, 1063, 1069}));
}

TEST(EngramHash, AnImageBlocksAllFurtherLookBack) {
  const auto config = load_model_config(kData + "tiny_config.json");
  const auto hashes = make_engram_hashes(*config);
  const EngramHash& hash = (*hashes)[0];
  std::vector<int64_t> blocked(6), padded(6), plain(6);
  const int64_t with_image[] = {7, -1, 9, 11};
  const int64_t with_pads[] = {7, 2, 2, 2};
  const int64_t without[] = {7, 2, 9, 11};
  engram_rows(hash, with_image, 2, 2, blocked.data());
  engram_rows(hash, with_pads, 2, 2, padded.data());
  engram_rows(hash, without, 2, 2, plain.data());
  EXPECT_EQ(blocked, padded);
  EXPECT_NE(blocked, plain);
}

// A folder with one shard of the given header and data.
class Folder {
 public:
  Folder() {
    std::string pattern = testing::TempDir() + "/weightsXXXXXX";
    path = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  void write(const std::string& header, size_t data_bytes,
             const std::string& name = "model.safetensors") const {
    std::ofstream file(path + "/" + name, std::ios::binary);
    const uint64_t n = header.size();
    file.write(reinterpret_cast<const char*>(&n), 8);
    file << header << std::string(data_bytes, '\1');
  }
  std::string failure() const {
    const auto opened = Checkpoint::open(path);
    return opened.has_value() ? "" : opened.error().message;
  }
  std::string path;
};

TEST(Checkpoint, FindsTensorsInTheMapping) {
  const Folder folder;
  folder.write(
      R"({"__metadata__":{"a":"b"},"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},"s":{"dtype":"F8_E8M0","shape":[4],"data_offsets":[12,16]}})",
      16);
  const auto opened = Checkpoint::open(folder.path);
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  const Tensor* w = (*opened)->find("w");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(w->bytes.size(), 12u);
  EXPECT_EQ((*opened)->find("x"), nullptr);
}

TEST(Checkpoint, KnowsTheSpellingsOfOtherExports) {
  EXPECT_EQ(released_name("model.layers.3.attn.wkv.weight"), "layers.3.attn.wkv.weight");
  EXPECT_EQ(released_name("model.layers.3.attn.wkv.weight_scale_inv"), "layers.3.attn.wkv.scale");
  EXPECT_EQ(released_name("layers.1.engram.embed.weight_scale_inv"), "layers.1.engram.embed.scale");
  EXPECT_EQ(released_name("layers.0.ffn.experts.1.w1.weight_scale"),
            "layers.0.ffn.experts.1.w1.scale");
  EXPECT_EQ(released_name("lm_head.weight"), "head.weight");
  EXPECT_EQ(released_name("model.embed_tokens.weight"), "embed.weight");
  EXPECT_EQ(released_name("mtp.1.norm.weight"), "mtp.1.norm.weight");
  const Folder folder;
  folder.write(R"({"model.norm.weight":{"dtype":"BF16","shape":[6],"data_offsets":[0,12]}})", 12);
  const auto opened = Checkpoint::open(folder.path);
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  EXPECT_NE((*opened)->find("norm.weight"), nullptr);
  folder.write(
      R"({"model.norm.weight":{"dtype":"BF16","shape":[6],"data_offsets":[0,12]},"norm.weight":{"dtype":"BF16","shape":[6],"data_offsets":[12,24]}})",
      24);
  EXPECT_NE(folder.failure().find("once more"), std::string::npos);
}

TEST(Checkpoint, RefusesHeadersThatLie) {
  const auto failure = [](const std::string& header, size_t data_bytes) {
    const Folder folder;
    folder.write(header, data_bytes);
    return folder.failure();
  };
  EXPECT_NE(failure(R"({"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}})", 11)
                .find("claims bytes 0 to 12 of 11"),
            std::string::npos);
  EXPECT_NE(failure(R"({"w":{"dtype":"BF16","shape":[2,4],"data_offsets":[0,12]}})", 12)
                .find("cannot have 12 bytes"),
            std::string::npos);
  EXPECT_NE(
      failure(
          R"({"w":{"dtype":"BF16","shape":[6],"data_offsets":[0,12]},"v":{"dtype":"BF16","shape":[6],"data_offsets":[8,20]}})",
          20)
          .find("overlap"),
      std::string::npos);
  EXPECT_NE(
      failure(
          R"({"w":{"dtype":"BF16","shape":[6],"data_offsets":[0,12]},"w":{"dtype":"BF16","shape":[6],"data_offsets":[12,24]}})",
          24)
          .find("twice"),
      std::string::npos);
  EXPECT_NE(
      failure(
          R"({"w":{"dtype":"BF16","shape":[281474976710656,281474976710656],"data_offsets":[0,12]}})",
          12)
          .find("cannot have"),
      std::string::npos);
  EXPECT_NE(
      failure(R"({"w":{"dtype":"BF16","shape":[-6],"data_offsets":[0,12]}})", 12).find("shape"),
      std::string::npos);
  EXPECT_NE(
      failure(R"({"w":{"dtype":"BF16","shape":[6],"data_offsets":[12,0]}})", 12).find("claims"),
      std::string::npos);
  EXPECT_NE(failure("nonsense", 12).find("no JSON object"), std::string::npos);
}

TEST(Checkpoint, RefusesTruncatedFilesAndBrokenFolders) {
  EXPECT_NE(Checkpoint::open("/nonexistent/model").error().message.find("no such model folder"),
            std::string::npos);
  const Folder folder;
  EXPECT_NE(folder.failure().find("the weights are missing"), std::string::npos);
  std::ofstream(folder.path + "/model.safetensors") << "abc";
  EXPECT_NE(folder.failure().find("has only 3 bytes"), std::string::npos);
  std::ofstream(folder.path + "/model.safetensors") << "\xff\xff\xff\xff\xff\xff\xff\x7f{}";
  EXPECT_NE(folder.failure().find("announces a header"), std::string::npos);
  std::ofstream(folder.path + "/model.safetensors.index.json")
      << R"({"weight_map":{"w":"../evil.safetensors"}})";
  EXPECT_NE(folder.failure().find("no plain file name"), std::string::npos);
  std::ofstream(folder.path + "/model.safetensors.index.json")
      << R"({"weight_map":{"w":"a.safetensors"}})";
  EXPECT_NE(folder.failure().find("cannot open"), std::string::npos);
  folder.write(R"({"v":{"dtype":"BF16","shape":[6],"data_offsets":[0,12]}})", 12, "a.safetensors");
  EXPECT_NE(folder.failure().find("which does not hold it"), std::string::npos);
}

}  // namespace
}  // namespace hadal::weights
