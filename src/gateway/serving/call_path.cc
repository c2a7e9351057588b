#include "gateway/serving/call_path.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "gateway/recipe/encode.h"
#include "gateway/recipe/template_text.h"

namespace hadal::serving {
namespace {

// Bytes of all names together; each byte is a state.
constexpr size_t kMaxNameBytes = 64u << 10;
// Longer tokens of names are left out: there are always shorter ones.
constexpr size_t kMaxTokenBytes = 32;

core::Error refused(std::string message, std::string param) {
  return {core::Code::kInvalidRequest, std::move(message), std::move(param)};
}

// The names with what follows them, as a tree of bytes; a state of the path for each node.
class NameTree {
 public:
  NameTree() : nodes_(1) {}

  void add(std::string_view text) {
    size_t at = 0;
    for (const char c : text) {
      const auto [found, is_new] = nodes_[at].try_emplace(c, nodes_.size());
      const size_t next = found->second;
      if (is_new) nodes_.emplace_back();
      at = next;
    }
  }

  // Appends the tree's states to `path`; node i is state path.states.size() + i.
  void append_to(types::TokenPath& path, const tokenizer::Tokenizer& tokenizer) const {
    const auto first = static_cast<uint32_t>(path.states.size());
    for (size_t node = 0; node < nodes_.size(); ++node) {
      std::vector<types::TokenPath::Edge>& edges = path.states.emplace_back();
      std::string bytes;
      collect(node, first, bytes, edges, tokenizer);
    }
  }

 private:
  void collect(size_t node, uint32_t first, std::string& bytes,
               std::vector<types::TokenPath::Edge>& edges,
               const tokenizer::Tokenizer& tokenizer) const {
    if (bytes.size() == kMaxTokenBytes) return;
    for (const auto& [c, next] : nodes_[node]) {
      bytes.push_back(c);
      const types::TokenId id = tokenizer.id_of(bytes);
      if (id >= 0 && !tokenizer.is_added(id)) {
        edges.push_back({id, first + static_cast<uint32_t>(next)});
      }
      collect(next, first, bytes, edges, tokenizer);
      bytes.pop_back();
    }
  }

  std::vector<std::map<char, size_t>> nodes_;
};

// The opening of a call in the spelling of the prompt format, up to the name's quote.
recipe::RenderedPrompt opening(recipe::Version version, bool with_block) {
  const recipe::TagNames names = recipe::tag_names(version);
  recipe::RenderedPrompt out;
  const auto tag = [&](std::string_view name) {
    out.text += '<';
    out.specials.push_back(
        {static_cast<uint32_t>(out.text.size()), static_cast<uint32_t>(recipe::kDsml.size())});
    out.text += recipe::kDsml;
    out.text += name;
  };
  if (with_block) {
    out.text = "\n\n";
    tag(names.block);
    out.text += ">\n";
  }
  tag(names.invoke);
  out.text += " name=\"";
  return out;
}

}  // namespace

core::Result<std::optional<types::TokenPath>> make_call_path(const recipe::CodecRequest& request,
                                                             const recipe::CodecOptions& options,
                                                             const tokenizer::Tokenizer& tokenizer,
                                                             types::TokenId end_token) {
  const recipe::Conversation& conversation = request.conversation;
  const bool asked =
      conversation.tool_choice == recipe::ToolChoice::kRequired && conversation.has_visible_tools();
  const bool in_prompt = !conversation.thinking && !conversation.forced_tool.empty();
  if (!asked || in_prompt) return std::optional<types::TokenPath>();
  NameTree names;
  size_t n_bytes = 0;
  for (const recipe::ToolDef* tool : conversation.tools) {
    n_bytes += tool->name.size();
    if (n_bytes > kMaxNameBytes) {
      return refused(fmt::format("a required call may choose among names of {} bytes together; "
                                 "declare fewer tools or name one",
                                 kMaxNameBytes),
                     "tool_choice");
    }
    names.add(std::string(tool->name) + "\">\n");
  }
  types::TokenPath path;
  if (conversation.thinking) {
    path.after = tokenizer.id_of(recipe::kThinkClose);
    const types::TokenId dsml = tokenizer.id_of(recipe::kDsml);
    if (path.after < 0 || dsml < 0) {
      return refused("the vocabulary has no tokens for calls", "tool_choice");
    }
    path.not_before = {dsml};
    if (end_token >= 0) path.not_before.push_back(end_token);
  }
  HADAL_TRY(const std::vector<types::TokenId> head,
            recipe::tokenize(opening(options.version, conversation.thinking), tokenizer));
  for (size_t i = 0; i < head.size(); ++i) {
    path.states.push_back({{head[i], static_cast<uint32_t>(i) + 1}});
  }
  names.append_to(path, tokenizer);
  return std::optional(std::move(path));
}

}  // namespace hadal::serving
