#include "gateway/serving/file_sender.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "gateway/serving/api_reply.h"

namespace hadal::serving {
namespace {

// As much as a connection takes at once, whatever its limit of pending bytes is.
constexpr size_t kMostAtOnce = 16 << 10;
constexpr auto kLookAround = std::chrono::milliseconds(5);

}  // namespace

FileSender::FileSender(store::Store& store)
    : store_(store), thread_([this](const std::stop_token& stop) { run(stop); }) {}

FileSender::~FileSender() {
  thread_.request_stop();
  thread_.join();
}

void FileSender::send(std::shared_ptr<http::Exchange> exchange, std::string tenant,
                      std::string file) {
  {
    const std::lock_guard lock(mutex_);
    arrived_.push_back(
        {.exchange = std::move(exchange), .tenant = std::move(tenant), .file = std::move(file)});
  }
  news_.notify_one();
}

void FileSender::run(const std::stop_token& stop) {
  std::list<Download> downloads;
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(mutex_);
      if (downloads.empty()) news_.wait(lock, stop, [&] { return !arrived_.empty(); });
      downloads.splice(downloads.end(), arrived_);
    }
    bool moved = false;
    for (auto at = downloads.begin(); at != downloads.end();) {
      const Step step = advance(*at);
      moved = moved || step != Step::kWaits;
      at = step == Step::kEnded ? downloads.erase(at) : std::next(at);
    }
    if (!moved && !downloads.empty()) std::this_thread::sleep_for(kLookAround);
  }
}

FileSender::Step FileSender::advance(Download& d) {
  if (d.exchange->closed()) return Step::kEnded;
  if (d.piece.empty()) {
    using Piece = std::pair<std::string, store::Files::Cursor>;
    auto read = store_.call<Piece>([&d](store::Tables& tables) -> core::Result<Piece> {
      Piece out{"", d.cursor};
      HADAL_TRY(out.first, tables.files.read(d.tenant, d.file, out.second));
      return out;
    });
    if (!read) {
      if (d.begun) {
        d.exchange->break_off();
      } else {
        Reply{.exchange = d.exchange}.error(read.error());
      }
      return Step::kEnded;
    }
    d.piece = std::move(read->first);
    d.cursor = read->second;
    if (!d.begun) {
      d.begun = true;
      d.exchange->start_stream({200, "application/octet-stream", {}, ""});
    }
    if (d.piece.empty()) {
      d.exchange->finish();
      return Step::kEnded;
    }
  }
  if (!d.exchange->has_room()) return Step::kWaits;
  const size_t n = std::min(d.piece.size(), kMostAtOnce);
  if (d.exchange->push_unbounded(std::string_view(d.piece).substr(0, n)) == http::Push::kClosed)
    return Step::kEnded;
  d.piece.erase(0, n);
  return Step::kMoved;
}

}  // namespace hadal::serving
