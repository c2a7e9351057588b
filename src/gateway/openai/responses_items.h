#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/core/result.h"
#include "gateway/recipe/conversation.h"

namespace hadal::openai {

// Flat names of namespaced tools: `ns::name` (V4: `ns__name`), made unique with _1, _2 ...
class NamespaceNames {
 public:
  NamespaceNames(recipe::RequestText& text, recipe::Version version)
      : text_(text), version_(version) {}
  // A plain name that no namespaced tool may take.
  void take(std::string_view name) { taken_.insert(name); }
  // The flat name of a declared tool, a new one each time.
  std::string_view declare(std::string_view ns, std::string_view name);
  // The flat name of a call: that of the declared tool, or one made for it.
  std::string_view of(std::string_view ns, std::string_view name);

 private:
  recipe::RequestText& text_;
  const recipe::Version version_;
  std::unordered_set<std::string_view> taken_;
  std::unordered_map<std::string, std::string_view> flat_;
};

// Turns the items of a Responses input into the messages of a conversation.
class ItemReader {
 public:
  ItemReader(const recipe::CodecOptions& options, recipe::CodecRequest& request,
             NamespaceNames& names)
      : options_(options), request_(request), names_(names) {}

  // `path`: of the list, for errors.
  core::Status read(recipe::JsonValue items, std::string_view path);
  core::Status finish() { return close_group(); }
  void read_text(std::string_view text);
  // Tools of a search result become part of the request; they are added when all items are read.
  struct FoundTools {
    recipe::JsonValue tools;
    std::string path;
    size_t message;  // the system message that shows them, an index into the messages
  };
  const std::vector<FoundTools>& found() const { return found_; }
  bool saw_json() const { return saw_json_; }

 private:
  struct Output {
    recipe::Message message;
    recipe::JsonValue tools;  // tool_search_output
    std::string path;
  };

  core::Status read_item(recipe::JsonValue item);
  core::Status read_message(recipe::JsonValue item);
  core::Status read_reasoning(recipe::JsonValue item);
  core::Status read_call(recipe::JsonValue item, std::string_view type);
  core::Status read_output(recipe::JsonValue item, std::string_view type);
  core::Status read_content(recipe::JsonValue content, std::string_view key,
                            recipe::Message& message);
  core::Status read_image(recipe::JsonValue part, const std::string& part_path,
                          recipe::Message& message);
  core::Status read_file(recipe::JsonValue part, const std::string& part_path,
                         recipe::Message& message);
  core::Status close_group();
  void flush_group();
  void note(std::string_view text);
  std::string path(std::string_view rest = {}) const;
  std::vector<recipe::Message>& messages() { return request_.conversation.messages; }
  recipe::Message* last_assistant();

  const recipe::CodecOptions& options_;
  recipe::CodecRequest& request_;
  NamespaceNames& names_;
  std::string_view list_path_;
  size_t index_ = 0;
  bool saw_json_ = false;
  // The open group of calls: they belong to one assistant message.
  std::vector<recipe::Call> calls_;
  std::vector<std::string> call_paths_;
  std::vector<Output> outputs_;
  std::unordered_map<std::string_view, bool> answered_;  // every call id so far
  std::vector<FoundTools> found_;
};

}  // namespace hadal::openai
