#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <boost/system/error_code.hpp>

#include "gateway/http/message.h"

namespace hadal::http {

// Parses one HTTP/1.x request after another from bytes as they come, with limits on head and body.
class RequestReader {
 public:
  enum class State : uint8_t { kNeedMore, kHeadDone, kComplete, kFailed };

  RequestReader(size_t max_header_bytes, size_t max_body_bytes);
  ~RequestReader();

  // Consumes a prefix of `bytes` (n_used). kHeadDone is reported once, when the head ended and
  // `bytes` does not hold the whole body; kFailed leaves status() and message() for the answer,
  // after which the connection must close.
  State feed(std::string_view bytes, size_t& n_used);
  // Takes the complete request and makes the reader ready for the next one. method, path, query,
  // headers, body are filled.
  Request take();

  bool in_progress() const;  // some byte of a request was consumed
  bool head_done() const;
  bool expects_continue() const;      // after kHeadDone
  uint64_t body_length_hint() const;  // Content-Length, or 0 when chunked
  size_t body_bytes() const;          // of the body so far
  bool keep_alive() const;            // after kComplete
  bool is_http10() const;
  int status() const { return status_; }
  std::string_view message() const { return message_; }
  std::string_view path() const { return path_; }

 private:
  State fail(int status, std::string message);
  State fail_on(const boost::system::error_code& error);
  bool read_head();
  bool read_transfer_encoding();

  struct Parser;
  const size_t max_header_bytes_;
  const size_t max_body_bytes_;
  std::unique_ptr<Parser>
      parser_;  // null between requests, so that an idle connection holds no parser
  bool head_reported_ = false;
  bool keep_alive_ = true;
  bool http10_ = false;
  int status_ = 0;
  std::string message_;
  std::string path_, query_;
};

}  // namespace hadal::http
