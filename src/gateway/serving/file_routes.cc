#include "gateway/serving/file_routes.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "base/tokenizer/utf8.h"
#include "gateway/http/multipart.h"
#include "gateway/recipe/json_writer.h"
#include "gateway/recipe/request_rules.h"

namespace hadal::serving {
namespace {

using recipe::invalid;
using store::StoredFile;
using store::Tables;

constexpr size_t kLongestFilename = 255;
constexpr int64_t kShortestLife = 3600, kLongestLife = 2'592'000;  // seconds
constexpr uint32_t kMostListed = 10'000;

std::string object_of(const StoredFile& file) {
  std::string out = R"({"id":)";
  recipe::append_quoted(out, file.id);
  fmt::format_to(std::back_inserter(out), R"(,"object":"file","bytes":{},"created_at":{})",
                 file.bytes, file.created);
  out += file.expires ? fmt::format(R"(,"expires_at":{})", *file.expires) : R"(,"expires_at":null)";
  out += R"(,"filename":)";
  recipe::append_quoted(out, file.filename);
  out += R"(,"purpose":)";
  recipe::append_quoted(out, file.purpose);
  return out + R"(,"status":"processed","status_details":null})";
}

struct Upload {
  StoredFile file;
  std::string_view content;
};

core::Result<Upload> read_upload(const http::Request& request) {
  HADAL_TRY(const std::vector<http::FormPart> parts,
            http::parse_multipart(request.header("content-type"), request.body));
  Upload out;
  bool has_file = false;
  std::string_view anchor, seconds;
  for (const http::FormPart& part : parts) {
    if (part.name == "file") {
      has_file = true;
      out.content = part.content;
      out.file.filename = tokenizer::lossy_utf8(part.filename);
    } else if (part.name == "purpose") {
      out.file.purpose = part.content;
    } else if (part.name == "expires_after[anchor]") {
      anchor = part.content;
    } else if (part.name == "expires_after[seconds]") {
      seconds = part.content;
    }
  }
  if (!has_file) return invalid("file: is missing", "file");
  if (out.file.filename.empty()) out.file.filename = "file";
  const bool clean = std::none_of(out.file.filename.begin(), out.file.filename.end(),
                                  [](char c) { return c >= 0 && c < 0x20; });
  if (!clean || out.file.filename.size() > kLongestFilename) {
    return invalid(
        fmt::format("file: its name must have at most {} bytes and no control characters",
                    kLongestFilename),
        "file");
  }
  if (out.file.purpose != "batch" && out.file.purpose != "user_data")
    return invalid("purpose: must be batch or user_data", "purpose");
  out.file.created = unix_seconds();
  if (anchor.empty() && seconds.empty()) return out;
  if (anchor != "created_at")
    return invalid("expires_after.anchor: must be created_at", "expires_after.anchor");
  int64_t life = 0;
  const auto read = std::from_chars(seconds.data(), seconds.data() + seconds.size(), life);
  if (read.ec != std::errc() || read.ptr != seconds.data() + seconds.size() ||
      life < kShortestLife || life > kLongestLife) {
    return invalid(fmt::format("expires_after.seconds: must be a number from {} to {}",
                               kShortestLife, kLongestLife),
                   "expires_after.seconds");
  }
  out.file.expires = out.file.created + life;
  return out;
}

class Files {
 public:
  Files(store::Store& store, RequestMaker& maker, FileSender& sender)
      : store_(store), maker_(maker), sender_(sender) {}

  void upload(const Reply& reply) {
    auto read = read_upload(reply.request());
    if (!read) return reply.error(read.error());
    read->file.id = "file-" + maker_.new_name();
    read->file.bytes = read->content.size();
    // The content is a view into the request, which `reply` keeps.
    store_.post<StoredFile>(
        [reply, upload = std::move(*read)](Tables& t) -> core::Result<StoredFile> {
          HADAL_TRY_VOID(t.files.put(reply.tenant, upload.file, upload.content));
          return upload.file;
        },
        answer_object(reply));
  }

  void get(const Reply& reply) {
    store_.post<StoredFile>([reply](Tables& t) { return t.files.find(reply.tenant, reply.id); },
                            answer_object(reply));
  }

  void content(const Reply& reply) {
    store_.post<StoredFile>([reply](Tables& t) { return t.files.find(reply.tenant, reply.id); },
                            [this, reply](const core::Result<StoredFile>& file) {
                              if (!file) return reply.error(file.error());
                              sender_.send(reply.exchange, reply.tenant, reply.id);
                            });
  }

  void list(const Reply& reply) {
    const auto page = read_page(reply.request(), kMostListed, kMostListed);
    if (!page) return reply.error(page.error());
    const std::string purpose = reply.request().query_param("purpose").value_or("");
    using Entries = store::Listed<StoredFile>;
    store_.post<Entries>([reply, purpose, page = *page](
                             Tables& t) { return t.files.list(reply.tenant, purpose, page); },
                         [reply](const core::Result<Entries>& files) {
                           if (!files) return reply.error(files.error());
                           std::vector<std::string> entries, ids;
                           for (const StoredFile& file : files->entries) {
                             entries.push_back(object_of(file));
                             ids.push_back(file.id);
                           }
                           reply.json(list_json(entries, ids, files->has_more));
                         });
  }

  void remove(const Reply& reply) {
    store_.post<bool>(
        [reply](Tables& t) -> core::Result<bool> {
          HADAL_TRY_VOID(t.files.erase(reply.tenant, reply.id));
          return true;
        },
        [reply](const core::Result<bool>& done) {
          if (!done) return reply.error(done.error());
          std::string body = R"({"id":)";
          recipe::append_quoted(body, reply.id);
          reply.json(body + R"(,"object":"file","deleted":true})");
        });
  }

 private:
  static std::function<void(core::Result<StoredFile>)> answer_object(const Reply& reply) {
    return [reply](const core::Result<StoredFile>& file) {
      if (!file) return reply.error(file.error());
      reply.json(object_of(*file));
    };
  }

  store::Store& store_;
  RequestMaker& maker_;
  FileSender& sender_;
};

}  // namespace

void add_file_routes(http::Router& router, const TenantOf& tenant_of, store::Store& store,
                     RequestMaker& maker, FileSender& sender) {
  const auto files = std::make_shared<Files>(store, maker, sender);
  const auto add = [&](const char* method, const char* rest, void (Files::*handler)(const Reply&)) {
    for (const char* root : {"/v1/files", "/files"}) {
      router.add(method, std::string(root) + rest,
                 [files, handler, tenant_of](std::shared_ptr<http::Exchange> exchange,
                                             const http::Request& request) {
                   ((*files).*handler)({.exchange = std::move(exchange),
                                        .tenant = tenant_of(request),
                                        .id = std::string(request.path_param("id"))});
                 });
    }
  };
  add("POST", "", &Files::upload);
  add("GET", "", &Files::list);
  add("GET", "/{id}", &Files::get);
  add("DELETE", "/{id}", &Files::remove);
  add("GET", "/{id}/content", &Files::content);
}

}  // namespace hadal::serving
