#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "gateway/http/exchange.h"
#include "gateway/store/store.h"

namespace hadal::serving {

// Sends stored files to clients, piece by piece as they read: one thread for all of them, and what
// one holds in memory is a piece and its connection's buffer. A slow reader keeps nobody waiting.
class FileSender {
 public:
  explicit FileSender(store::Store& store);
  ~FileSender();  // cuts what is under way
  // The answer is begun and ended here; the file was there a moment ago.
  void send(std::shared_ptr<http::Exchange> exchange, std::string tenant, std::string file);

 private:
  struct Download {
    std::shared_ptr<http::Exchange> exchange;
    std::string tenant, file;
    store::Files::Cursor cursor = {};
    std::string piece = {};  // what of it was not taken yet
    bool begun = false;
  };
  enum class Step : uint8_t { kMoved, kWaits, kEnded };
  void run(const std::stop_token& stop);
  Step advance(Download& download);

  store::Store& store_;
  std::mutex mutex_;  // guards arrived_
  std::condition_variable_any news_;
  std::list<Download> arrived_;
  std::jthread thread_;
};

}  // namespace hadal::serving
