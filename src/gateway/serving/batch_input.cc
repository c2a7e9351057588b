#include "gateway/serving/batch_input.h"

#include <utility>

namespace hadal::serving {

core::Result<bool> BatchInput::next(Line& line) {
  using Piece = std::pair<std::string, store::Files::Cursor>;
  line.text.clear();
  while (true) {
    if (at_ == piece_.size()) {
      if (!at_end_) {
        HADAL_TRY(Piece read,
                  store_->call<Piece>([this](store::Tables& tables) -> core::Result<Piece> {
                    Piece out{"", cursor_};
                    HADAL_TRY(out.first, tables.files.read(tenant_, file_, out.second));
                    return out;
                  }));
        piece_ = std::move(read.first);
        cursor_ = read.second;
        at_ = 0;
        at_end_ = piece_.empty();
      }
      if (at_end_) {
        if (line.text.find_first_not_of(" \t\r") == std::string::npos) return false;
        line.number = ++n_lines_;
        return true;
      }
    }
    const size_t end = piece_.find('\n', at_);
    if (end == std::string::npos) {
      line.text.append(piece_, at_);
      at_ = piece_.size();
      continue;
    }
    line.text.append(piece_, at_, end - at_);
    at_ = end + 1;
    line.number = ++n_lines_;
    if (line.text.find_first_not_of(" \t\r") != std::string::npos) return true;
    line.text.clear();
  }
}

}  // namespace hadal::serving
