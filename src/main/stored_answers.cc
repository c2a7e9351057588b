#include "main/stored_answers.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "compute/weights/read_file.h"

namespace hadal::main {
namespace {

using nlohmann::json;

constexpr size_t kMaxFile = 16u << 20;
constexpr int64_t kFormat = 1;
constexpr int64_t kMaxId = 1 << 24;
// A file must not ask for more memory than a check is worth.
constexpr size_t kMaxAnswers = 64, kMaxIds = 4096;

constexpr std::string_view kNoIds = "is no list of 1 to 4096 ids of the vocabulary";

core::Error refused(const std::string& path, std::string_view field, std::string_view problem) {
  return {core::Code::kInvalidRequest,
          fmt::format("{}: {} {}; write it again where the model is known to be right: hadal "
                      "selfcheck --write FILE",
                      path, field, problem),
          "expect"};
}

bool read_whole(const json& object, const char* key, int64_t most, int64_t& out) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return false;
  // What 64 bits without a sign hold alone is negative here.
  out = found->get<int64_t>();
  return out >= 0 && out <= most;
}

bool read_ids(const json& object, const char* key, int64_t vocab, std::vector<int32_t>& out) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array() || found->empty() || found->size() > kMaxIds)
    return false;
  for (const json& id : *found) {
    if (!id.is_number_integer()) return false;
    const auto value = id.get<int64_t>();
    if (value < 0 || value >= vocab) return false;
    out.push_back(static_cast<int32_t>(value));
  }
  return true;
}

bool read_margins(const json& object, size_t n, std::vector<double>& out) {
  const auto found = object.find("margins");
  if (found == object.end() || !found->is_array() || found->size() != n) return false;
  for (const json& margin : *found) {
    if (!margin.is_number() || !(margin.get<double>() >= 0)) return false;
    out.push_back(margin.get<double>());
  }
  return true;
}

}  // namespace

core::Result<StoredAnswers> read_stored_answers(const std::string& path) {
  HADAL_TRY(const std::string text, weights::read_file(path, kMaxFile));
  const json root = json::parse(text, nullptr, false);
  int64_t format = 0;
  if (!root.is_object() || !read_whole(root, "hadal_selfcheck", kFormat, format) ||
      format != kFormat)
    return refused(path, "hadal_selfcheck", "is not 1: this is no file of stored answers");
  StoredAnswers out;
  if (!read_whole(root, "vocab", kMaxId, out.vocab))
    return refused(path, "vocab", "is no number of ids");
  if (!read_whole(root, "layers", kMaxId, out.n_layers))
    return refused(path, "layers", "is no number of layers");
  if (!read_whole(root, "weight_bytes", INT64_MAX, out.weight_bytes))
    return refused(path, "weight_bytes", "is no number of bytes");
  const auto answers = root.find("answers");
  if (answers == root.end() || !answers->is_array() || answers->empty() ||
      answers->size() > kMaxAnswers)
    return refused(path, "answers", fmt::format("is no list of 1 to {} answers", kMaxAnswers));
  for (const json& answer : *answers) {
    const auto field = [&](const char* name) {
      return fmt::format("answers[{}].{}", out.answers.size(), name);
    };
    StoredAnswer one;
    if (!answer.is_object() || !read_ids(answer, "prompt", out.vocab, one.prompt))
      return refused(path, field("prompt"), kNoIds);
    if (!read_ids(answer, "ids", out.vocab, one.ids)) return refused(path, field("ids"), kNoIds);
    if (!read_margins(answer, one.ids.size(), one.margins))
      return refused(path, field("margins"), "does not have one number from 0 for each id");
    if (!out.answers.empty() && one.ids.size() != out.answers.front().ids.size())
      return refused(path, field("ids"), "has not as many ids as the first answer");
    out.answers.push_back(std::move(one));
  }
  return out;
}

core::Status write_stored_answers(const StoredAnswers& stored, const std::string& path) {
  std::string text =
      fmt::format(R"({{"hadal_selfcheck":{},"vocab":{},"layers":{},"weight_bytes":{},"answers":[)",
                  kFormat, stored.vocab, stored.n_layers, stored.weight_bytes);
  for (const StoredAnswer& answer : stored.answers) {
    text += fmt::format("{}\n{{\"prompt\":[{}],\n \"ids\":[{}],\n \"margins\":[{:.4f}]}}",
                        &answer == stored.answers.data() ? "" : ",", fmt::join(answer.prompt, ","),
                        fmt::join(answer.ids, ","), fmt::join(answer.margins, ","));
  }
  text += "]}\n";
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "wb"), &std::fclose);
  const bool written =
      file != nullptr && std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  if (!written || std::fclose(file.release()) != 0) {
    return core::Error{core::Code::kIo,
                       fmt::format("cannot write {}; give --write a file in a folder that exists, "
                                   "may be written and has room",
                                   path),
                       "write"};
  }
  return {};
}

core::Status check_same_model(const StoredAnswers& stored, const StoredAnswers& model,
                              const std::string& path) {
  if (stored.vocab == model.vocab && stored.n_layers == model.n_layers &&
      stored.weight_bytes == model.weight_bytes)
    return {};
  return core::Error{
      core::Code::kInvalidRequest,
      fmt::format("{}: was written by a model of {} ids, {} layers and {} bytes of tensors; this "
                  "one has {}, {} and {}. Give the file that belongs to it, or write one where it "
                  "is known to be right: hadal selfcheck --write FILE",
                  path, stored.vocab, stored.n_layers, stored.weight_bytes, model.vocab,
                  model.n_layers, model.weight_bytes),
      "expect"};
}

std::optional<Departure> first_departure(const StoredAnswer& stored, std::span<const int32_t> got) {
  for (size_t i = 0; i < stored.ids.size(); ++i) {
    const int32_t here = i < got.size() ? got[i] : -1;
    if (here != stored.ids[i]) return Departure{i, stored.ids[i], here, stored.margins[i]};
  }
  return std::nullopt;
}

}  // namespace hadal::main
