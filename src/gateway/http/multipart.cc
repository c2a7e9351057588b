#include "gateway/http/multipart.h"

#include <algorithm>

#include <fmt/format.h>

namespace hadal::http {
namespace {

core::Error malformed(std::string_view why) {
  return {core::Code::kInvalidRequest, fmt::format("the form cannot be read: {}", why)};
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool equal_without_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The value of a parameter after the first ';' of a header; quoted ones without their quotes and
// with \" and \\ resolved, as browsers and libraries write them.
bool header_param(std::string_view header, std::string_view name, std::string& out) {
  size_t at = header.find(';');
  while (at != std::string_view::npos && at < header.size()) {
    std::string_view rest = trimmed(header.substr(at + 1));
    const size_t equals = rest.find('=');
    if (equals == std::string_view::npos) return false;
    const std::string_view key = trimmed(rest.substr(0, equals));
    rest.remove_prefix(equals + 1);
    std::string value;
    size_t used = 0;
    if (rest.starts_with('"')) {
      for (used = 1; used < rest.size() && rest[used] != '"'; ++used) {
        const bool escaped = rest[used] == '\\' && used + 1 < rest.size() &&
                             (rest[used + 1] == '"' || rest[used + 1] == '\\');
        if (escaped) ++used;
        value += rest[used];
      }
      if (used == rest.size()) return false;
      ++used;
    } else {
      used = std::min(rest.find(';'), rest.size());
      value = trimmed(rest.substr(0, used));
    }
    if (equal_without_case(key, name)) {
      out = std::move(value);
      return true;
    }
    const size_t next = rest.find(';', used);
    if (next == std::string_view::npos) return false;
    header = rest;
    at = next;
  }
  return false;
}

core::Status read_head(std::string_view head, FormPart& part) {
  bool named = false;
  while (!head.empty()) {
    const size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + 2, head.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return malformed("a header of a part has no colon");
    if (!equal_without_case(trimmed(line.substr(0, colon)), "content-disposition")) continue;
    const std::string_view value = line.substr(colon + 1);
    named = header_param(value, "name", part.name);
    part.has_filename = header_param(value, "filename", part.filename);
  }
  if (!named) return malformed("a part has no name");
  return {};
}

}  // namespace

core::Result<std::vector<FormPart>> parse_multipart(std::string_view content_type,
                                                    std::string_view body) {
  constexpr std::string_view kType = "multipart/form-data";
  std::string boundary;
  if (!equal_without_case(trimmed(content_type.substr(0, content_type.find(';'))), kType))
    return malformed("the content type must be multipart/form-data");
  if (!header_param(content_type, "boundary", boundary) || boundary.empty() ||
      boundary.size() > 70) {
    return malformed("the content type has no boundary of 1 to 70 characters");
  }
  // Every delimiter begins with CRLF but perhaps the first.
  const std::string delimiter = "\r\n--" + boundary;
  std::string_view rest = body;
  if (rest.starts_with(std::string_view(delimiter).substr(2))) {
    rest.remove_prefix(delimiter.size() - 2);
  } else if (const size_t first = rest.find(delimiter); first != std::string_view::npos) {
    rest.remove_prefix(first + delimiter.size());
  } else {
    return malformed("its boundary does not occur");
  }
  std::vector<FormPart> parts;
  while (!rest.starts_with("--")) {
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    if (!rest.starts_with("\r\n")) return malformed("a boundary does not end its line");
    const size_t head_end = rest.find("\r\n\r\n");
    const size_t end = rest.find(delimiter, 2);
    if (head_end == std::string_view::npos || end == std::string_view::npos || end < head_end + 2)
      return malformed("a part does not end");
    if (parts.size() == kMostParts) return malformed("it has too many parts");
    FormPart& part = parts.emplace_back();
    HADAL_TRY_VOID(read_head(rest.substr(2, head_end > 2 ? head_end - 2 : 0), part));
    // A part without content may share the CRLF of its head with the boundary.
    const size_t begin = std::min(head_end + 4, end);
    part.content = rest.substr(begin, end - begin);
    rest.remove_prefix(end + delimiter.size());
  }
  return parts;
}

}  // namespace hadal::http
